"""An engine at work on a `CountedLlama`, and whether each of its requests gets its own tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assignment.provided.serving import Completion, Sampling, Step
from tests.grading.closeness import Mismatch, assert_close, assert_equal
from tests.serving.engine_model import CountedLlama

__tracebackhide__ = True

MOST_STEPS = 200  # no test needs half as many


class Served:
    """Takes an engine's calls, passes them on, and remembers the requests.

    draw_tokens: (logits [T, V], sampling, uniforms [T]) -> tokens [T], by the submission's own
        `next_token_probs` and `sample`.
    requests: (prompt, sampling) by number. aborted: some of their numbers.
    steps: those that had something to do.
    """

    def __init__(self, new_engine: Callable, draw_tokens: Callable, draw, **options):
        self.model = CountedLlama(draw)
        options = {"num_blocks": 64, "block_size": 4, **options}
        self.engine = new_engine(self.model.parts, **options)
        self.num_blocks = options["num_blocks"]
        self.requests: dict[int, tuple[list[int], Sampling]] = {}
        self.aborted: set[int] = set()
        self.steps: list[Step] = []
        self._draw, self._draw_tokens = draw, draw_tokens

    def prompt(self, length: int) -> list[int]:
        return self._draw.integers(0, self.model.config.vocab_size, length).tolist()

    def submit(self, prompt: list[int] | int, on_token: Callable | None = None, **sampling) -> int:
        """A request with this prompt, or one of this length; its number."""
        prompt = self.prompt(prompt) if isinstance(prompt, int) else prompt
        asked = Sampling(**sampling)
        arguments = [prompt, asked] if on_token is None else [prompt, asked, on_token]
        number = self.engine.submit(*arguments)
        self.requests[number] = (prompt, asked)
        return number

    def abort(self, number: int) -> None:
        self.engine.abort(number)
        self.aborted.add(number)

    def step(self) -> Step:
        step = self.engine.step()
        if not isinstance(step, Step):
            kind = type(step).__name__
            raise Mismatch(f"expected a Step, got {kind}", expected="a Step", got=kind, what="step")
        if step.chunks:
            self.steps.append(step)
        return step

    def run(self, between: Callable[[int], object] = lambda steps: None) -> None:
        """Step until there is nothing to do; `between` is told before each how many there were."""
        between(len(self.steps))
        while self.step().chunks:
            if len(self.steps) > MOST_STEPS:
                raise Mismatch(
                    f"not at an end after {MOST_STEPS} steps", expected="an end", got="none"
                )
            between(len(self.steps))

    def completions(self, number: int) -> list[Completion]:
        got = self.engine.completions(number)
        assert_equal(len(got), self.requests[number][1].n, what=f"answers of request {number}")
        return got

    @property
    def preempted(self) -> int:
        return sum(len(step.preempted) for step in self.steps)

    @property
    def used(self) -> int:
        return self.num_blocks - self.engine.cache.num_free

    def assert_right(self) -> None:
        """Every request has its own tokens, all of them unless it was aborted, and no block."""
        for number in self.requests:
            for sample, got in enumerate(self.completions(number)):
                self.assert_begun(number, sample, got)
                if number not in self.aborted or got.finish_reason != "abort":
                    self._assert_ended(number, sample, got)
        assert_equal(self.used, 0, what="blocks in use when all is done")

    def _assert_ended(self, number: int, sample: int, got: Completion) -> None:
        _, sampling = self.requests[number]
        what = f"answer {sample} of request {number}"
        if got.tokens[-1:] and got.tokens[-1] in sampling.stop_tokens:
            assert_equal(got.finish_reason, "stop", what=f"{what}: finish_reason")
        else:
            count = sampling.max_new_tokens
            assert_equal(len(got.tokens), count, what=f"{what}: number of tokens")
            assert_equal(got.finish_reason, "length", what=f"{what}: finish_reason")

    def assert_begun(self, number: int, sample: int, got: Completion) -> None:
        """The beginning of an answer, perhaps all of it: no token is wrong or one too many."""
        prompt, sampling = self.requests[number]
        what = f"answer {sample} of request {number} (prompt of {len(prompt)} tokens)"
        tokens = self._assert_tokens(got.tokens, what)
        if tokens:
            logits = self.model.logits_after(prompt, tokens)
            self._assert_drawn(tokens, logits, sampling, sample, what)
            self._assert_logprobs(got.logprobs, logits, tokens, sampling, what)
        stops = [i for i, token in enumerate(tokens) if token in sampling.stop_tokens]
        most = stops[0] + 1 if stops else sampling.max_new_tokens
        assert_equal(tokens[most:], [], what=f"{what}: tokens after its end")

    def _assert_tokens(self, tokens: object, what: str) -> list[int]:
        vocab = range(self.model.config.vocab_size)
        if not isinstance(tokens, tuple) or any(
            type(t) is not int or t not in vocab for t in tokens
        ):
            raise Mismatch(
                f"expected a tuple of token ids, got {tokens!r}",
                expected="a tuple of token ids",
                got=repr(tokens),
                what=what,
            )
        return list(tokens)

    def _assert_drawn(self, tokens, logits: Tensor, sampling: Sampling, sample: int, what: str):
        """Each token is the right one behind those before it: so the whole answer is."""
        if sampling.temperature == 0:
            expected = logits.argmax(dim=-1)
        else:
            uniforms = [sampling.uniform(sample, i) for i in range(len(tokens))]
            expected = self._draw_tokens(logits, sampling, torch.tensor(uniforms))
        for i, (token, right) in enumerate(zip(tokens, expected.tolist(), strict=True)):
            assert_equal(token, right, what=f"{what}: new token {i}")

    def _assert_logprobs(self, got, logits: Tensor, tokens, sampling: Sampling, what: str) -> None:
        if not sampling.logprobs:
            assert_equal(got, (), what=f"{what}: logprobs, which nobody asked for")
            return
        expected = logits.log_softmax(dim=-1)[torch.arange(len(tokens)), torch.tensor(tokens)]
        got = torch.tensor(got, dtype=torch.float64)
        about = expected + 1e-6  # a right answer may sum in float32
        assert_close(got, expected, naive=about, axes="token", what=f"{what}: logprobs")


class Workload:
    """Ragged requests, more than there are sequences; every prompt fits into the step it has.

    calls, rows, head_rows: of the engine, and `ideal_…`: if a request begins in the step after the
        one that gave it a place. Rows are in effect: a call reads all weights, and so it counts as
        `MAX_SEQUENCES` rows, if it has fewer.
    tokens: of all answers. static: calls in batches that end with their longest answer.
    """

    ANSWERS, MAX_SEQUENCES = (3, 12, 5, 9, 2, 11, 11, 10, 8, 4, 2, 2), 6

    def __init__(self, server: Served, draw):
        prompts = (1 + draw.permutation(len(self.ANSWERS))).tolist()
        for length, count in zip(prompts, self.ANSWERS, strict=True):
            server.submit(length, max_new_tokens=count)
        server.run()
        server.assert_right()
        self.calls = len(server.model.rows)
        self.rows = self._effective(server.model.rows)
        self.head_rows = self._effective(server.model.head_rows)
        starts = self._starts()
        self.ideal_calls = max(map(sum, zip(starts, self.ANSWERS, strict=True)))
        self.ideal_rows = self._effective(self._rows(starts, prompts))
        self.ideal_head_rows = self._effective(self._rows(starts, [1] * len(prompts)))
        self.tokens = sum(self.ANSWERS)
        groups = range(0, len(self.ANSWERS), self.MAX_SEQUENCES)
        self.static = sum(max(self.ANSWERS[i : i + self.MAX_SEQUENCES]) for i in groups)

    def _effective(self, rows: list[int]) -> int:
        return sum(max(each, self.MAX_SEQUENCES) for each in rows)

    def _starts(self) -> list[int]:
        """The step in which each request begins."""
        ends, starts = [0] * self.MAX_SEQUENCES, []
        for count in self.ANSWERS:
            place = ends.index(min(ends))
            starts.append(ends[place])
            ends[place] += count
        return starts

    def _rows(self, starts: list[int], prompts: list[int]) -> list[int]:
        """Rows of each step: the prompt in a request's first, one in each of the others."""
        rows = [0] * self.ideal_calls
        for start, length, count in zip(starts, prompts, self.ANSWERS, strict=True):
            rows[start] += length
            for step in range(start + 1, start + count):
                rows[step] += 1
        return rows
