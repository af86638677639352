"""serving.engine: each request gets its own tokens, whatever else is in the batch, at least cost.

The model is a small Llama in the grader's process, in float64. It counts what it is asked for; and
without any cache, the whole sequence at once, it says which tokens are right.
"""

from __future__ import annotations

import pytest
import torch

from assignment.provided.models import Llama
from assignment.provided.serving import Completion, ModelParts, Step
from submission.attention.generate import next_token_probs, sample
from submission.serving.engine import Engine, gather_attention
from tests.grading.boundary import watch
from tests.grading.closeness import assert_equal
from tests.grading.refusal import assert_value_error
from tests.grading.shapes import HEAD_RATIOS, around
from tests.serving.engine_attention import Backend, Probe, assert_attention, draw_paged
from tests.serving.engine_model import CONFIG
from tests.serving.engine_served import Served, Workload


def draw_tokens(logits, sampling, uniforms):
    probs = next_token_probs(logits, sampling.temperature, sampling.top_k, sampling.top_p)
    return sample(probs, uniforms)


def served(draw, **options) -> Served:
    return Served(Engine, draw_tokens, draw, **options)


@pytest.mark.group("attention")
class TestAttention:
    # A chunk within a prompt, decodes, a whole prompt, its end; lengths around a block's end.
    QUERIES, TOKENS = (4, 1, 1, 7, 1, 3, 1, 2), (11, 9, 4, 7, 5, 12, 1, 9)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("heads, kv_heads", HEAD_RATIOS)
    def test_equals_the_textbook(self, draw, heads, kv_heads, dtype):
        paged = draw_paged(draw, heads, kv_heads, self.QUERIES, self.TOKENS, dtype=dtype)
        assert_attention(gather_attention(*paged.arguments), paged)

    @pytest.mark.parametrize("block_size", [1, 4, 16])
    def test_decodes_only(self, draw, block_size):
        lengths = [33, *around(4), *around(16), *around(32), 1]
        paged = draw_paged(draw, 9, 3, [1] * 11, lengths, block_size=block_size)
        assert_attention(gather_attention(*paged.arguments), paged)

    @pytest.mark.parametrize("new, length", [(1, 1), (1, 8), (6, 6), (3, 10)])
    def test_one_request(self, draw, new, length):
        paged = draw_paged(draw, 6, 2, [new], [length])
        assert_attention(gather_attention(*paged.arguments), paged)

    @pytest.mark.parametrize(
        "blocks", [(1, 3, 2, 4), (4, 3, 2, 1), (1, 2, 3, 4), (3, 4, 5, 1), (1, 2, 4, 5)], ids=str
    )
    def test_blocks_in_a_row_and_nearly_so(self, draw, blocks):
        rest = [block for block in range(8) if block not in blocks]
        paged = draw_paged(draw, 6, 2, [1, 2], [15, 3], blocks=[*blocks, *rest])
        assert_attention(gather_attention(*paged.arguments), paged)

    @pytest.mark.parametrize("new, length", [(80, 100), (1, 200), (65, 65)])
    def test_long_ones(self, draw, new, length):
        paged = draw_paged(draw, 6, 2, [new, 3], [length, 9], block_size=16)
        assert_attention(gather_attention(*paged.arguments), paged)

    def test_bfloat16_scores_stay_apart(self, draw):
        """Near 256 the neighbours in bfloat16 are 2 apart."""
        paged = draw_paged(draw, 6, 2, [1, 3], [13, 9], dtype=torch.bfloat16, level=200.0)
        assert_attention(gather_attention(*paged.arguments), paged)

    def test_arguments_are_not_changed(self, draw):
        paged = draw_paged(draw, 6, 2, self.QUERIES, self.TOKENS)
        _, changed = watch(gather_attention, *paged.arguments)
        assert changed == [], "an argument was changed, by its place"

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_new_keys_and_values_are_stored(self, draw, dtype):
        """In their slots, in the model's dtype; nothing else changes. What `attention` returns is
        what the model gets."""
        probe = Probe(draw, 4, dtype)
        options = {"max_tokens": 8, "max_sequences": 4, "attention": probe.attention}
        engine = Engine(probe.parts, 30, 4, **options)
        for length in (3, 9, 5):
            engine.submit(draw.integers(0, 11, length).tolist())
        for _ in range(6):
            engine.step()
        assert probe.calls >= 6, f"{probe.calls} calls of attention in 6 steps of one layer"

    def test_the_given_backend_is_used(self, draw):
        backend = Backend(CONFIG, 40, 4, torch.float64)
        options = {"attention": backend.attention, "store": backend.store}
        server = served(draw, num_blocks=40, max_tokens=10, max_sequences=4, **options)
        for length in (13, 2, 8):
            server.submit(length, max_new_tokens=5)
        server.run()
        server.assert_right()
        assert backend.attended >= 2 * len(server.steps), "attention is not called in every layer"

    def test_no_graph_is_kept(self, draw):
        """With a model whose parameters require gradients."""
        llama, graphs = Llama(CONFIG, seed=draw.seed()), []

        def attention(q, k_cache, v_cache, *_):
            graphs.append(k_cache.requires_grad or v_cache.requires_grad)
            return torch.zeros_like(q)

        parts = ModelParts(CONFIG, llama.dtype, llama.hidden, llama.logits)
        engine = Engine(parts, 12, 4, attention=attention)
        engine.submit([3, 1, 4])
        for _ in range(3):
            engine.step()
        assert_equal(graphs, [False] * 3 * CONFIG.num_layers, what="caches that require a gradient")


@pytest.mark.group("batch")
class TestBatch:
    @pytest.mark.parametrize(
        "length, block_size", [(1, 4), (7, 4), (8, 4), (9, 4), (5, 1), (9, 16)]
    )
    def test_one_request(self, draw, length, block_size):
        server = served(draw, block_size=block_size)
        number = server.submit(length, max_new_tokens=6)
        server.run()
        expected = server.model.greedy(server.requests[number][0], 6)
        assert_equal(list(server.completions(number)[0].tokens), expected, what="new tokens")
        server.assert_right()

    def test_ragged_requests(self, draw):
        server = served(draw)
        for length, count in [(3, 9), (9, 2), (1, 7), (14, 1), (5, 8)]:
            server.submit(length, max_new_tokens=count)
        server.run()
        server.assert_right()

    def test_prompts_in_chunks_among_decodes(self, draw):
        server = served(draw, max_tokens=6, max_sequences=4)
        for length in (2, 17, 9):
            server.submit(length, max_new_tokens=8)
        server.run()
        mixed = [len({chunk.samples for chunk in step.chunks}) == 2 for step in server.steps]
        assert any(mixed), "in no step does one request decode while another is in its prompt"
        server.assert_right()

    def test_more_requests_than_sequences(self, draw):
        """Some of them come while others are at work."""
        server = served(draw, max_sequences=3, max_tokens=20)

        def between(steps):
            for length in {0: (6, 2, 9, 4), 3: (11, 5), 8: (3,)}.get(steps, ()):
                server.submit(length, max_new_tokens=3 + length % 4)

        server.run(between)
        assert_equal(len(server.requests), 7)
        server.assert_right()

    def test_run_to_the_end(self, draw):
        server = served(draw, max_sequences=2)
        for length in (4, 7, 1):
            server.submit(length, max_new_tokens=4)
        server.engine.run()
        server.assert_right()
        assert_equal(server.engine.step(), Step(), what="a step with nothing to do")


@pytest.mark.group("sampling")
class TestSampling:
    FILTERS = (
        {"temperature": 0.7},
        {},
        {"temperature": 1.3, "top_k": 5},
        {"temperature": 1.0, "top_p": 0.6},
        {"temperature": 1.3, "top_k": 3},
        {"temperature": 2.0, "top_k": 12, "top_p": 0.8},
        {"temperature": 1.3, "top_k": 5},
    )

    def submit_all(self, server, prompts, **sampling) -> list[int]:
        return [
            server.submit(prompt, max_new_tokens=7, seed=seed, **filters, **sampling)
            for seed, (prompt, filters) in enumerate(zip(prompts, self.FILTERS, strict=True))
        ]

    def test_each_request_has_its_own_filters(self, draw):
        server = served(draw)
        self.submit_all(server, [4, 4, 6, 5, 6, 2, 1])
        server.run()
        server.assert_right()

    def test_filters_that_are_alike_but_for_one(self, draw):
        server = served(draw)
        for filters in ({}, {"top_p": 0.3}, {"top_p": 0.6, "top_k": 3}, {"top_k": 3}):
            server.submit(5, max_new_tokens=7, seed=len(filters), temperature=1.5, **filters)
        server.run()
        server.assert_right()

    def test_logprobs_are_of_the_models_own_law(self, draw):
        server = served(draw, max_tokens=20)
        self.submit_all(server, [4, 9, 2, 7, 5, 1, 3], logprobs=True)
        server.run()
        server.assert_right()

    def test_answers_are_independent(self, draw):
        server = served(draw)
        number = server.submit(5, max_new_tokens=8, temperature=1.5, n=4)
        server.run()
        server.assert_right()
        texts = {completion.tokens for completion in server.completions(number)}
        assert_equal(len(texts), 4, what="different ones among 4 answers at temperature 1.5")

    def test_a_seed_decides(self, draw):
        """The same request twice, at another time and in other company; and with another seed."""
        server = served(draw)
        prompt, asked = server.prompt(6), {"max_new_tokens": 9, "temperature": 1.5, "n": 2}
        first = server.submit(prompt, seed=7, **asked)
        other = server.submit(prompt, seed=8, **asked)
        server.submit(11, max_new_tokens=12, temperature=1.0)
        server.step()
        again = server.submit(prompt, seed=7, **asked)
        server.run()
        server.assert_right()
        assert_equal(server.completions(again), server.completions(first), what="asked again")
        assert server.completions(other) != server.completions(first), "another seed, same answers"


@pytest.mark.group("sharing")
class TestSharing:
    @pytest.mark.parametrize("length", [8, 10, 11])
    def test_answers_share_their_prompt(self, draw, length):
        """One prefill; then each writes behind it, in its own block: a copy, if it was begun."""
        server = served(draw)
        number = server.submit(length, max_new_tokens=6, temperature=1.2, n=3)
        table = server.engine.cache.table
        server.step()
        assert_equal(server.model.rows, [length], what="rows of the first step")
        assert_equal(server.used, -(-length // 4), what="blocks in use after the prompt")
        for answer in (number + 1, number + 2):
            assert_equal(table(answer), table(number), what="blocks of an answer after the prompt")
        server.step()
        assert_equal(server.used, length // 4 + 3, what="blocks in use when all three have written")
        for answer in (number + 1, number + 2):
            full = length // 4
            assert_equal(
                table(answer)[:full], table(number)[:full], what="full blocks of an answer"
            )
        server.run()
        assert_equal(sum(server.model.rows), length + 5 * 3, what="rows of all steps")
        server.assert_right()

    def test_answers_of_unequal_length(self, draw):
        """In company, with stop tokens: some end while the blocks are shared."""
        server = served(draw)
        stop_tokens = tuple(range(0, 41, 6))
        for length in (6, 9, 3):
            asked = {"n": 4, "temperature": 1.5, "stop_tokens": stop_tokens}
            server.submit(length, max_new_tokens=8, seed=draw.seed(), **asked)
        server.run()
        server.assert_right()

    @pytest.mark.parametrize("prefix_caching", [True, False])
    def test_more_answers_than_sequences(self, draw, prefix_caching):
        server = served(draw, max_sequences=2, prefix_caching=prefix_caching)
        server.submit(6, max_new_tokens=5, temperature=1.2, n=5)
        server.submit(3, max_new_tokens=4)
        server.run()
        server.assert_right()

    @pytest.mark.parametrize("length, held", [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (14, 12)])
    @pytest.mark.parametrize("prefix_caching", [True, False])
    def test_a_prompt_that_was_there_before(self, draw, prefix_caching, length, held):
        """Whole blocks of it are not computed again; the last token always is."""
        server = served(draw, prefix_caching=prefix_caching)
        prompt = server.prompt(length)
        for _ in range(2):
            server.submit(prompt, max_new_tokens=4, temperature=1.0, seed=draw.seed())
            server.run()
        second = length - held if prefix_caching else length
        expected = [length, 1, 1, 1, second, 1, 1, 1]
        assert_equal(server.model.rows, expected, what="rows of each step")
        server.assert_right()

    def test_a_conversation(self, draw):
        """The next prompt begins with prompt and answer: 5 + 8 tokens, of which 12 are computed."""
        server = served(draw)
        number = server.submit(5, max_new_tokens=8)
        server.run()
        prompt = [*server.requests[number][0], *server.completions(number)[0].tokens]
        server.submit([*prompt, *server.prompt(3)], max_new_tokens=2)
        other = (prompt[7] + 1) % server.model.config.vocab_size
        server.submit([*prompt[:7], other, *server.prompt(2)], max_new_tokens=2)
        server.run()
        rows = [step.num_tokens for step in server.steps[8:]]
        assert_equal(rows, [4 + 6, 2], what="rows of the steps of the second turn")
        server.assert_right()

    def test_a_prefix_of_one_at_work(self, draw):
        server = served(draw)
        prefix = server.prompt(9)
        server.submit([*prefix, *server.prompt(2)], max_new_tokens=9, temperature=1.0)
        server.step()
        server.submit([*prefix, *server.prompt(5)], max_new_tokens=9, temperature=1.0)
        server.step()
        assert_equal(server.used, 2 + 1 + 2, what="blocks in use, two of them shared")
        server.run()
        rows = [step.num_tokens for step in server.steps[:2]]
        assert_equal(rows, [11, 1 + 6], what="rows of the first two steps")
        server.assert_right()


@pytest.mark.group("pressure")
class TestPressure:
    @pytest.mark.parametrize("prefix_caching", [True, False])
    def test_preempted_requests(self, draw, prefix_caching):
        server = served(draw, num_blocks=9, max_sequences=5, prefix_caching=prefix_caching)
        for length, temperature, n in [
            (5, 0, 1),
            (9, 1.2, 1),
            (3, 1.2, 3),
            (6, 0, 1),
            (10, 1.2, 2),
        ]:
            server.submit(length, max_new_tokens=11, temperature=temperature, n=n, logprobs=True)
        server.run()
        assert server.preempted > 2, f"{server.preempted} preemptions in 9 blocks"
        server.assert_right()

    def test_aborted_at_any_time(self, draw):
        server = served(draw, num_blocks=14, max_sequences=4, max_tokens=8)
        times = draw.integers(0, 18, 6).tolist()

        def between(steps):
            if steps % 3 == 0 and len(server.requests) < 12:
                for _ in range(2):
                    server.submit(3 + steps, max_new_tokens=6, temperature=1.2, n=1 + steps % 2)
            for _ in range(times.count(steps)):
                chosen = int(draw.integers(0, len(server.requests), 1))
                server.abort(list(server.requests)[chosen])

        server.run(between)
        server.assert_right()

    @pytest.mark.parametrize("steps", [0, 1, 2])
    def test_aborted_before_the_first_token(self, draw, steps):
        server = served(draw, max_tokens=4, max_sequences=2)
        number = server.submit(12, max_new_tokens=5, n=3)
        server.submit(5, max_new_tokens=5)
        for _ in range(steps):
            server.step()
        server.abort(number)
        for when in ("at once", "when the other request is done"):
            for answer, got in enumerate(server.completions(number)):
                what = f"answer {answer} of 3, aborted before it began, {when}"
                assert_equal(got, Completion((), "abort"), what=what)
            server.run()
        server.assert_right()

    def test_aborted_in_its_prompt_and_asked_again(self, draw):
        """What was not computed is not found."""
        server = served(draw, max_tokens=5, max_sequences=2)
        prompt = server.prompt(12)
        number = server.submit(prompt, max_new_tokens=5)
        server.step()
        server.abort(number)
        server.submit([*prompt, 1], max_new_tokens=5)
        server.run()
        server.assert_right()

    def test_aborted_by_who_is_told(self, draw):
        """The seventh token, the third of the first answer, ends the request and one that waits."""
        server, told = served(draw, max_sequences=3), []

        def on_token(sample, token):
            told.append(sample)
            if len(told) == 7:
                server.abort(number)
                server.abort(other)

        number = server.submit(4, on_token, max_new_tokens=9, temperature=1.2, n=3)
        server.step()
        other = server.submit(4, max_new_tokens=9)
        server.submit(5, max_new_tokens=9)
        server.run()
        counts = [len(completion.tokens) for completion in server.completions(number)]
        assert_equal(counts, [3, 3, 3], what="tokens of the aborted answers")
        times = [told.count(sample) for sample in range(3)]
        assert_equal(times, [3, 3, 3], what="tokens told, those of the last step too")
        assert_equal(server.completions(other), [Completion((), "abort")], what="the one aborted")
        server.assert_right()

    def test_what_never_fits_is_refused(self, draw):
        """Prompt and new tokens but the last need 24 slots or 25, and there are 24."""
        server = served(draw, num_blocks=6)
        server.submit(7, max_new_tokens=6)
        server.step()
        assert_value_error("20 + 6 tokens", server.submit, 20)
        assert_value_error("20 + 6 tokens", server.submit, [0] * 20)
        server.submit(19, max_new_tokens=6)
        server.submit(3, max_new_tokens=2)
        server.run()
        server.assert_right()

    def test_any_mix(self, draw):
        """Shared beginnings, several answers, stop tokens, aborts, too few blocks: all at once."""
        server = served(draw, num_blocks=16, max_sequences=5, max_tokens=12)
        beginnings = [server.prompt(9), server.prompt(6), []]

        def between(steps):
            if len(server.requests) < 14:
                kind, length, n, count = draw.integers(1, 5, 4).tolist()
                prompt = [*beginnings[kind % 3], *server.prompt(length)]
                options = {"temperature": kind % 2 * 1.3, "n": n % 3 + 1, "stop_tokens": (3, 8)}
                server.submit(prompt, max_new_tokens=3 * count, seed=steps, **options)
            if steps % 7 == 6:
                server.abort(list(server.requests)[-2])

        server.run(between)
        server.assert_right()


@pytest.mark.group("requests")
class TestRequests:
    @pytest.mark.parametrize("place", [0, 1, 4])
    def test_stop_tokens(self, draw, place):
        """The first of them ends the answer, and stays; also as the last token that it may have."""
        server = served(draw)
        prompts = [server.prompt(length) for length in (6, 9, 3)]
        stops = [server.model.greedy(prompt, 5)[place] for prompt in prompts]
        for prompt, stop in zip(prompts, stops, strict=True):
            server.submit(prompt, max_new_tokens=5, stop_tokens=(stop, 41))
        server.submit(prompts[0], max_new_tokens=5, stop_tokens=())
        server.run()
        server.assert_right()

    def test_answers_that_stop_at_once(self, draw):
        """Some of four do, by their first token: the others go on, whichever they are."""
        server = served(draw)
        for _ in range(4):
            stop_tokens = draw.permutation(41)[:20].tolist()
            asked = {"n": 4, "temperature": 3.0, "stop_tokens": tuple(stop_tokens)}
            server.submit(5, max_new_tokens=4, seed=draw.seed(), **asked)
        server.run()
        server.assert_right()

    def test_one_new_token(self, draw):
        server = served(draw)
        server.submit(9, max_new_tokens=1)
        server.submit(6, max_new_tokens=1, temperature=1.2, n=3)
        server.run()
        rows = [step.num_tokens for step in server.steps]
        assert_equal(rows, [15], what="rows of each step: the last token is not fed")
        server.assert_right()

    def test_answers_at_work_are_the_beginning(self, draw):
        server = served(draw, max_tokens=6, max_sequences=3)
        for length in (4, 9, 2):
            server.submit(length, max_new_tokens=5, temperature=1.0, n=1 + length % 2)

        def between(steps):
            for number in server.requests:
                for i, completion in enumerate(server.completions(number)):
                    server.assert_begun(number, i, completion)
                    ended = len(completion.tokens) == 5
                    reason = "length" if ended else None
                    assert_equal(completion.finish_reason, reason, what="finish_reason")

        server.run(between)
        server.assert_right()

    def test_who_asked_is_told(self, draw):
        """Each token once, in order, at the end of its step: by then the answer has it."""
        server, told = served(draw, max_tokens=7, max_sequences=7), {}

        def listener(name):
            def on_token(sample, token):
                told.setdefault((name, sample), []).append((len(server.steps), token))

            return on_token

        numbers = {}
        for name, length, n in (("a", 4, 1), ("b", 9, 3), ("c", 2, 2)):
            asked = {"max_new_tokens": 5, "temperature": 1.0, "n": n}
            numbers[name] = server.submit(length, listener(name), **asked)
        server.submit(3, max_new_tokens=5)
        server.run()
        server.assert_right()
        for name, number in numbers.items():
            for i, completion in enumerate(server.completions(number)):
                tokens = [token for _, token in told[name, i]]
                assert_equal(tokens, list(completion.tokens), what=f"told of answer {i} of {name}")
        times = [steps for steps, _ in told["a", 0]]
        assert_equal(times, [0, 1, 2, 3, 4], what="steps before each token of the first request")

    def test_the_last_token_is_told(self, draw):
        server, told = served(draw, max_tokens=9, max_sequences=7), {}

        def on_token(sample, token):
            told.setdefault(sample, []).append(token)

        stops = tuple(range(0, server.model.config.vocab_size, 4))
        asked = {"max_new_tokens": 9, "temperature": 2.0, "n": 4, "stop_tokens": stops}
        number = server.submit(9, on_token, **asked)
        server.run()
        answers = enumerate(server.completions(number))
        assert_equal(told, {i: list(answer.tokens) for i, answer in answers}, what="told")

    def test_who_is_told_may_ask(self, draw):
        server = served(draw)

        def on_token(sample, token):
            tokens = server.completions(first)[0].tokens
            assert_equal(tokens[-1:], (token,), what="newest token, when it is told")
            if len(server.requests) < 3:
                server.submit(5, max_new_tokens=4)

        first = server.submit(4, on_token, max_new_tokens=5)
        server.run()
        assert_equal(len(server.requests), 3)
        server.assert_right()

    def test_refusals(self, draw):
        server = served(draw)
        number = server.submit(5, max_new_tokens=4)
        server.step()
        for what, prompt in {
            "token 41 of 41": [3, 41, 2],
            "token −1": [-1],
            "no token": [],
            "more than fit": [0] * 300,
        }.items():
            assert_value_error(what, server.engine.submit, prompt)
        for method in (server.engine.abort, server.engine.completions):
            for stranger in (number + 1, number + 2, number + 17):
                assert_value_error("no such request", method, stranger)
        server.submit(6, max_new_tokens=2)
        server.run()
        server.assert_right()

    def test_the_number_of_an_answer_is_no_request(self, draw):
        server = served(draw)
        number = server.submit(4, max_new_tokens=3, n=3)
        for _ in range(2):
            for answer in (number + 1, number + 2):
                for method in (server.engine.abort, server.engine.completions):
                    assert_value_error("the number of an answer", method, answer)
            server.step()
        server.run()
        server.assert_right()

    def test_a_step_is_a_call(self, draw):
        """All tokens of a step go through the model together; the first step samples nothing."""
        server = served(draw, max_tokens=6, max_sequences=4)
        for length in (17, 2, 9):
            server.submit(length, max_new_tokens=8)
        server.run()
        assert_equal(server.model.rows, [step.num_tokens for step in server.steps], what="rows")
        assert 0 not in server.model.head_rows, "`logits` was called with no row"
        assert max(server.model.rows) <= 6, f"{max(server.model.rows)} rows, max_tokens is 6"

    def test_a_long_answer(self, draw):
        server = served(draw)
        server.submit(3, max_new_tokens=60)
        server.engine.run()
        server.assert_right()

    def test_an_end_that_is_aborted_stays(self, draw):
        server = served(draw)
        number = server.submit(5, max_new_tokens=2, n=2)
        server.run()
        server.engine.abort(number)
        server.assert_right()


def measured(draw) -> Workload:
    server = served(draw, num_blocks=80, max_sequences=Workload.MAX_SEQUENCES)
    return Workload(server, draw)


@pytest.mark.cost("model_calls")
def test_calls_of_the_model(draw, budget):
    """A request begins in the step after one has ended."""
    work = measured(draw)
    beside = {"static batches": work.static, "one at a time": work.tokens}
    budget(work.calls, work.ideal_calls, unit="calls", beside=beside)


@pytest.mark.cost("rows")
def test_rows_of_the_layers(draw, budget):
    """Each prompt, and each new token but the last, is fed once. A call counts as at least 6 rows:
    it reads all weights, however few they are."""
    work = measured(draw)
    budget(work.rows, work.ideal_rows, unit="rows")


@pytest.mark.cost("rows")
def test_rows_of_the_head(draw, budget):
    """Logits of what is sampled from, and of no other token; counted as those of the layers."""
    work = measured(draw)
    budget(work.head_rows, work.ideal_head_rows, unit="rows", beside={"of every row": work.rows})


@pytest.mark.cost("rows")
def test_rows_of_one_step(draw, budget):
    """Requests of 3, 9 and 5 tokens are 17 rows, one after another: the example in Orca."""
    server = served(draw)
    for length in (3, 9, 5):
        server.submit(length, max_new_tokens=1)
    server.run()
    server.assert_right()
    budget(sum(server.model.rows), 17, unit="rows", beside={"padded to the longest": 27})
