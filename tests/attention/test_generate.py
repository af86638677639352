"""attention.generate: the right tokens, by the right law, from a model fed no more than needed.

TableLM is the model: the next token's probabilities are known fractions that depend on every token
before it, so a token dropped, repeated or out of place shows at once. Its sessions count calls.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import pytest
import torch

from assignment.provided.models import Llama, LlamaConfig, ReplaySession, TableLM
from submission.attention.generate import generate, next_token_probs, sample
from tests.attention import oracles
from tests.grading.boundary import watch
from tests.grading.closeness import assert_close, assert_equal

VOCAB = 13
TOY = LlamaConfig(VOCAB, num_layers=2, d_model=24, num_heads=6, num_kv_heads=2, head_dim=4, d_ff=40)


def forward_of(session):
    """What `generate` is given: the session as a function, with misleading padding."""

    def forward(tokens, num_tokens):
        logits = session(tokens, num_tokens)
        padding = torch.arange(tokens.shape[1]) >= num_tokens[:, None]
        logits[padding] = torch.linspace(0, 20, logits.shape[-1])  # would give the last token
        return logits

    return forward


def run(model, prompts, max_new_tokens, *, session=None, **options):
    """generate() on a fresh session of the model."""
    session = session or ReplaySession(model, len(prompts))
    return generate(forward_of(session), prompts, max_new_tokens, **options)


def assert_texts(got, expected):
    """Row by row: the message shows one row, not all."""
    assert_equal(len(got), len(expected))
    for row, (new, right) in enumerate(zip(got, expected, strict=True)):
        assert new == right, f"row {row}: expected the new tokens {right}, got {new}"


def draw_prompts(draw, lengths, vocab=VOCAB):
    return [draw.integers(0, vocab, n).tolist() for n in lengths]


@pytest.mark.group("greedy")
class TestGreedy:
    @pytest.mark.parametrize("length", [1, 6])
    def test_equals_the_uncached_loop(self, draw, length):
        model = TableLM(VOCAB, draw.seed())
        prompts = draw_prompts(draw, [length] * 3)
        expected = [oracles.greedy(model, prompt, 9) for prompt in prompts]
        assert_texts(run(model, prompts, 9), expected)

    def test_on_a_llama(self, draw):
        model = Llama(TOY, seed=draw.seed())
        prompts = draw_prompts(draw, [5, 5])
        expected = [oracles.greedy(model, prompt, 8) for prompt in prompts]
        assert_texts(run(model, prompts, 8), expected)

    def test_plain_lists_of_integers(self, draw):
        new = run(TableLM(VOCAB, draw.seed()), draw_prompts(draw, [3, 3]), 4)
        assert all(type(token) is int for row in new for token in row)

    def test_uniforms_do_not_disturb_it(self, draw):
        model, prompts = TableLM(VOCAB, draw.seed()), draw_prompts(draw, [3, 5])
        expected = [oracles.greedy(model, prompt, 6) for prompt in prompts]
        assert_texts(run(model, prompts, 6, uniforms=draw.uniform(2, 6)), expected)

    def test_prompts_are_not_changed(self, draw):
        prompts = draw_prompts(draw, [2, 4])
        session = TableLM(VOCAB, draw.seed()).session(2)
        _, changed = watch(generate, forward_of(session), prompts, 3)
        assert changed == [], "the lists of prompts were changed"


@pytest.mark.group("probabilities")
class TestNextTokenProbs:
    WEIGHTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0)  # sum 55; the partial sums meet no top_p below

    @pytest.mark.parametrize(
        "temperature, top_k, top_p",
        [
            (1.0, None, 1.0),
            (0.5, None, 1.0),
            (3.0, None, 1.0),
            (0.05, None, 1.0),
            (1.0, 4, 1.0),
            (1.0, 40, 1.0),
            (1.0, None, 0.5),
            (1.0, None, 0.9),
            (1.0, None, 0.9999),
            (1.0, 4, 0.5),  # of the four's mass, not of all: 2 tokens, not 3
            (0.5, None, 0.5),  # the nucleus of the sharpened distribution
            (2.0, 7, 0.8),
        ],
    )
    def test_filters(self, draw, temperature, top_k, top_p):
        weights = torch.tensor(self.WEIGHTS)
        logits = torch.stack([weights[draw.permutation(11)] for _ in range(3)]).float().log()
        got = next_token_probs(logits, temperature, top_k, top_p)
        assert_probs(got, logits, temperature, top_k, top_p)

    @pytest.mark.parametrize("top_k, top_p", [(None, 1.0), (5, 0.5)])
    def test_temperature_zero_is_the_arg_max(self, draw, top_k, top_p):
        logits = draw.normal(4, 11)
        expected = torch.zeros(4, 11).scatter(1, logits.argmax(1, keepdim=True), 1.0)
        assert_equal(next_token_probs(logits, 0.0, top_k, top_p), expected, axes="row token")

    @pytest.mark.parametrize(
        "filters, kept", [((1.0, 3, 1.0), 3), ((1.0, None, 0.45), 6), ((0.0, None, 1.0), 1)]
    )
    def test_of_equals_the_lower_ids_stay(self, draw, filters, kept):
        logits = torch.full((2, 40), -20.0)  # but 13 equal tokens have next to all probability
        best = [draw.permutation(40)[:13].sort().values for _ in range(2)]
        expected = torch.zeros(2, 40, dtype=torch.float64)
        for row, ids in enumerate(best):
            logits[row, ids] = 3.0
            expected[row, ids[:kept]] = 1 / kept
        assert_close(next_token_probs(logits, *filters), expected, axes="row token")

    @pytest.mark.parametrize("filters", [(1.0, None, 0.5), (1e-3, None, 1.0), (1e-3, 3, 0.9)])
    def test_one_token_has_all_the_mass(self, draw, filters):
        """−inf everywhere else, or so low a temperature that exp() of the quotient overflows."""
        logits = torch.full((3, 11), -torch.inf) if filters[0] == 1 else draw.normal(3, 11)
        best = draw.permutation(11)[:3]
        logits[torch.arange(3), best] = 9.0
        expected = torch.zeros(3, 11).scatter(1, best[:, None], 1.0)
        assert_equal(next_token_probs(logits, *filters), expected, axes="row token")

    def test_bfloat16_logits_get_float32_probabilities(self, draw):
        logits = draw.normal(3, 29, dtype=torch.bfloat16, scale=3.0)
        got = next_token_probs(logits, 1.5)
        assert_probs(got, logits, 1.5, None, 1.0)

    @pytest.mark.parametrize("temperature", [0.0, 0.7])
    def test_logits_are_not_changed(self, draw, temperature):
        logits = draw.normal(3, 11)
        _, changed = watch(next_token_probs, logits, temperature, 5, 0.8)
        assert changed == [], "the logits were changed in place"

    def test_filters_that_make_no_sense(self, draw):
        for filters in [(-1.0, None, 1.0), (1.0, 0, 1.0), (1.0, None, 0.0), (1.0, None, 1.1)]:
            with pytest.raises(ValueError):
                next_token_probs(draw.normal(2, 5), *filters)


def assert_probs(got, logits, temperature, top_k, top_p):
    expected, naive = (
        oracles.next_token_probs(logits, temperature, top_k, top_p, dtype)
        for dtype in (torch.float64, torch.float32)
    )
    assert got.dtype in (torch.float32, torch.float64), f"expected float32, got {got.dtype}"
    assert_close(got, expected, naive=naive, axes="row token")
    assert_equal(got > 0, expected > 0, axes="row token")


@pytest.mark.group("sampling")
class TestSample:
    def test_each_token_gets_its_share(self):
        for weights in ([1, 2, 3, 4], [0, 0, 7, 0, 2, 1, 0], [1], [5, 5, 5], [0, 23, 1, 0, 40]):
            total = sum(weights)
            probs = (torch.tensor(weights) / total).expand(total, -1)
            uniforms = (torch.arange(total) + 0.5) / total  # the middles of `total` equal pieces
            shares = sample(probs, uniforms).bincount(minlength=len(weights))
            assert_equal(shares, torch.tensor(weights), axes="token")

    def test_each_row_has_its_own_law(self, draw):
        ids = draw.permutation(9)
        probs = torch.zeros(9, 9).scatter(1, ids[:, None], 1.0)
        assert_equal(sample(probs, draw.uniform(9)), ids, axes="row")

    def test_each_row_has_its_own_uniform(self, draw):
        order = draw.permutation(12)
        uniforms = (torch.arange(12) + 0.5) / 12
        probs = torch.full((12, 12), 1 / 12)
        assert_equal(sample(probs, uniforms[order]), sample(probs, uniforms)[order], axes="row")

    def test_the_ends_of_the_unit_interval(self):
        uniforms = torch.tensor([0.0, 2.0**-40, 1 - 2.0**-23, 1 - 2.0**-24])
        for support in (3, 700, 19_990):
            probs = torch.zeros(4, support + 20)
            probs[:, 10:-10] = (1 - 1e-6) / support  # so far off may rounding leave the sum
            drawn = sample(probs, uniforms)
            inside = (drawn >= 10) & (drawn < support + 10)
            assert inside.all(), f"expected tokens 10 to {support + 9}, got {drawn.tolist()}"

    def test_arguments_are_not_changed(self, draw):
        _, changed = watch(sample, draw.normal(3, 7).softmax(1), draw.uniform(3))
        assert changed == [], "the probabilities (0) or the uniforms (1) were changed in place"

    def test_tokens_are_int64(self, draw):
        drawn = sample(torch.full((3, 5), 0.2), draw.uniform(3))
        assert drawn.dtype == torch.int64, f"expected int64, got {drawn.dtype}"


@pytest.mark.group("sampling")
class TestSampledText:
    @pytest.mark.parametrize(
        "options, law",
        [
            ({"temperature": 1.0}, (1, 2, 3)),
            ({"temperature": 0.5}, (1, 4, 9)),  # squares the weights
            ({"temperature": 1.0, "top_k": 2}, (0, 2, 3)),
            ({"temperature": 0.5, "top_p": 0.8}, (0, 4, 9)),
        ],
    )
    def test_law_of_two_tokens(self, draw, options, law):
        """Every pair of uniforms from a grid: each text comes up exactly as often as it should."""
        model, total = TableLM(3, draw.seed(), weights=(1, 2, 3)), sum(law)
        prompt = draw_prompts(draw, [4], vocab=3)[0]
        grid = itertools.product((torch.arange(total) + 0.5).div(total).tolist(), repeat=2)
        uniforms = torch.tensor(list(grid))
        new = run(model, [prompt] * total**2, 2, uniforms=uniforms, **options)
        got = Counter(tuple(row) for row in new)
        for first, second in itertools.product(range(3), repeat=2):
            often = law_of(model, prompt, law)[first] * law_of(model, [*prompt, first], law)[second]
            expected = int(often * total**2)
            count = got[first, second]
            assert count == expected, (
                f"{[first, second]} after {prompt}: expected {expected} of {total**2} draws, "
                f"got {count}"
            )

    def test_token_i_uses_uniform_i(self, draw):
        model = TableLM(VOCAB, draw.seed())
        prompts, uniforms = draw_prompts(draw, [2, 5, 3, 4]), draw.uniform(4, 6)
        whole = run(model, prompts, 6, temperature=1.0, uniforms=uniforms)
        for kept in (1, 4):
            other = torch.cat([uniforms[:, :kept], draw.uniform(4, 6 - kept)], dim=1)
            again = run(model, prompts, 6, temperature=1.0, uniforms=other)
            assert_texts([row[:kept] for row in again], [row[:kept] for row in whole])
            assert again != whole, "the other uniforms change nothing"

    @pytest.mark.parametrize("filters", [{"top_k": 1}, {"top_p": 1e-6}])
    def test_one_token_left_is_greedy(self, draw, filters):
        model = TableLM(VOCAB, draw.seed())
        prompts = draw_prompts(draw, [3, 1, 4])
        options = {"temperature": 1.3, "uniforms": draw.uniform(3, 5), **filters}
        assert_texts(run(model, prompts, 5, **options), run(model, prompts, 5))

    def test_temperature_needs_uniforms(self, draw):
        model = TableLM(VOCAB, draw.seed())
        with pytest.raises(ValueError):
            run(model, draw_prompts(draw, [2, 3]), 4, temperature=1.0)


def law_of(model, prefix, law):
    """The law of the next token: `law` sorted as the model's weights are after this prefix."""
    rank = {weight: share for weight, share in zip((1, 2, 3), law, strict=True)}
    return [Fraction(rank[weight], sum(law)) for weight in model.weights(prefix)]


@pytest.mark.group("stopping")
class TestStopping:
    def test_stop_token_ends_its_row_only(self, draw):
        model, prompts, plain = self._texts(draw, [4, 2, 6, 3], 10)
        for stop_tokens in ([plain[0][0]], (plain[1][5],), {plain[2][3], plain[3][7]}):
            expected = [until(row, stop_tokens) for row in plain]
            assert_texts(run(model, prompts, 10, stop_tokens=stop_tokens), expected)

    def test_token_zero_stops_as_any_other(self, draw):
        model, prompts, plain = self._texts(draw, [4, 2, 3, 5], 40)
        assert any(0 in row for row in plain), "draw longer texts: none of these has a token 0"
        expected = [until(row, [0]) for row in plain]
        assert_texts(run(model, prompts, 40, stop_tokens=[0]), expected)

    def test_stop_token_in_the_prompt_does_nothing(self, draw):
        model, prompts, plain = self._texts(draw, [4, 4], 5)
        stop = next(token for token in range(VOCAB) if token not in plain[0] + plain[1])
        prompts = [[stop, *prompt[1:-1], stop] for prompt in prompts]
        expected = [until(oracles.greedy(model, prompt, 5), [stop]) for prompt in prompts]
        assert_texts(run(model, prompts, 5, stop_tokens=[stop]), expected)

    def test_max_length_counts_the_prompt(self, draw):
        model, prompts, plain = self._texts(draw, [2, 7, 8, 9], 5)
        expected = [row[:n] for row, n in zip(plain, [5, 2, 1, 0], strict=True)]
        assert_texts(run(model, prompts, 5, max_length=9), expected)

    def test_nothing_is_fed_that_is_not_needed(self, draw):
        model, prompts, plain = self._texts(draw, [4, 2, 6, 3], 8)
        stop_tokens = [plain[0][1], plain[2][4]]
        expected = [until(row, stop_tokens) for row in plain]
        fed = [len(prompt) + len(new) - 1 for prompt, new in zip(prompts, expected, strict=True)]
        session = model.session(4, capacity=max(fed))  # a cache without a slot to spare
        got = run(model, prompts, 8, session=session, stop_tokens=stop_tokens)
        assert_texts(got, expected)
        assert_equal(session.lengths.tolist(), fed)

    def test_no_new_tokens_wanted(self, draw):
        model, prompts, _ = self._texts(draw, [3, 2], 1)
        assert_texts(run(model, prompts, 0), [[], []])
        assert_texts(run(model, prompts, 4, max_length=3), [[], run(model, prompts, 1)[1]])

    def test_requests_that_make_no_sense(self):
        for prompts, options in [
            ([], {}),
            ([[1, 2], []], {}),
            ([[1, 2], [1, 2, 3]], {"max_length": 2}),
            ([[1, 2], [3]], {"max_new_tokens": -1}),
            ([[1, 2], [3]], {"temperature": 1.0, "uniforms": torch.zeros(2, 3)}),
        ]:
            session = TableLM(VOCAB).session(2)
            with pytest.raises(ValueError):
                generate(forward_of(session), prompts, **({"max_new_tokens": 4} | options))

    def _texts(self, draw, lengths, max_new_tokens):
        model = TableLM(VOCAB, draw.seed())
        prompts = draw_prompts(draw, lengths)
        return model, prompts, [oracles.greedy(model, p, max_new_tokens) for p in prompts]


def until(tokens, stop_tokens):
    """The tokens up to the first stop token, that one included."""
    ends = [i + 1 for i, token in enumerate(tokens) if token in stop_tokens]
    return tokens[: min(ends, default=len(tokens))]


@pytest.mark.group("batch")
class TestBatch:
    LENGTHS = (1, 6, 3, 9, 2)

    def test_greedy_rows_equal_solo_runs(self, draw):
        model, prompts = TableLM(VOCAB, draw.seed()), draw_prompts(draw, self.LENGTHS)
        expected = [oracles.greedy(model, prompt, 7) for prompt in prompts]
        assert_texts(run(model, prompts, 7), expected)

    def test_llama_rows_equal_solo_runs(self, draw):
        model, prompts = Llama(TOY, seed=draw.seed()), draw_prompts(draw, [2, 7, 4])
        expected = [oracles.greedy(model, prompt, 5) for prompt in prompts]
        assert_texts(run(model, prompts, 5), expected)

    def test_sampled_rows_equal_solo_runs(self, draw):
        model, prompts = TableLM(VOCAB, draw.seed()), draw_prompts(draw, self.LENGTHS)
        uniforms = draw.uniform(5, 7)
        options = {"temperature": 1.1, "top_k": 9, "top_p": 0.93, "max_length": 11}
        free = run(model, prompts, 7, uniforms=uniforms, **options)
        options["stop_tokens"] = [free[0][2], free[1][1]]  # rows end at different steps
        got = run(model, prompts, 7, uniforms=uniforms, **options)
        solo = [
            run(model, [prompt], 7, uniforms=uniforms[row : row + 1], **options)[0]
            for row, prompt in enumerate(prompts)
        ]
        assert_texts(got, solo)
        assert_texts(got, [until(row, options["stop_tokens"]) for row in free])


class Measured:
    """One batch generated with counted calls; rows of unequal prompts end at unequal steps."""

    def __init__(self, draw):
        model, limits = TableLM(VOCAB, draw.seed()), [24, 13, 19, 22]
        self.prompts = draw_prompts(draw, [30 - limit for limit in limits])
        self.expected = [
            oracles.greedy(model, prompt, limit)
            for prompt, limit in zip(self.prompts, limits, strict=True)
        ]
        self.session = model.session(4)
        got = run(model, self.prompts, 24, session=self.session, max_length=30)
        assert_texts(got, self.expected)

    @property
    def steps(self) -> int:
        return max(map(len, self.expected))

    @property
    def rows(self):
        return list(zip(self.prompts, self.expected, strict=True))


@pytest.mark.cost("model_calls")
def test_one_call_a_step(draw, budget):
    """The prompts in one call, and one more for each further token of the longest row."""
    measured = Measured(draw)
    uncached = sum(len(new) for _, new in measured.rows)
    budget(
        measured.session.num_calls,
        measured.steps,
        unit="calls",
        beside={"uncached loop, row by row": uncached},
    )


@pytest.mark.cost("tokens")
def test_each_token_is_fed_once(draw, budget):
    """Each row feeds its prompt and its new tokens but the last, once."""
    measured = Measured(draw)
    uncached = sum(len(prompt) + i for prompt, new in measured.rows for i in range(len(new)))
    budget(
        measured.session.tokens,
        sum(len(prompt) + len(new) - 1 for prompt, new in measured.rows),
        unit="tokens",
        beside={"uncached loop": uncached},
    )


@pytest.mark.cost("flops")
def test_flops_of_the_calls(draw, budget):
    """What the calls would cost on a small Llama, padding included, by its exact formula."""
    measured = Measured(draw)
    made, held = [], torch.zeros(4, dtype=torch.int64)
    for call in measured.session.calls:
        held += torch.tensor(call.num_tokens)
        made.append((4, call.columns, int(held.max())))
    widest = max(map(len, measured.prompts))
    needed = [(4, widest, widest)]
    for step in range(1, measured.steps):
        longest = max(len(prompt) + min(step, len(new) - 1) for prompt, new in measured.rows)
        needed.append((4, 1, longest))
    uncached = [(1, n, n) for p, new in measured.rows for n in range(len(p), len(p) + len(new))]
    budget(
        oracles.flops(oracles.LLAMA, made),
        oracles.flops(oracles.LLAMA, needed),
        unit="FLOPs",
        beside={"uncached loop": oracles.flops(oracles.LLAMA, uncached)},
    )
