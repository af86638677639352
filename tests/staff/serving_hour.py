"""A server's hour, compressed: random requests, forks and aborts in a cache that is too small.

    python -m tests.staff.serving_hour --minutes 5

Every token of every answer is checked against one pass of the model over the whole answer, without
a cache: if each is what the law of its request draws after those before it, the answer is, by
induction, that of a solo run. (Now and then one is run, too.) After each step every block must be
free or in a table.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import torch
from rich.progress import Progress

from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.serving import Completion, Sampling, Step
from solutions.attention.generate import next_token_probs, sample
from solutions.serving.engine import Engine

CONFIG = LlamaConfig(
    vocab_size=23, num_layers=2, d_model=16, num_heads=4, num_kv_heads=2, head_dim=4, d_ff=16
)
SLOTS = 48  # of the cache, about: two or three requests fill it
BLOCK_SIZES = (1, 2, 3, 7, 16)
HAPPENINGS = {
    "answered",
    "stopped",
    "forked",
    "preempted",
    "copied",
    "prefix found",
    "aborted while it waits",
    "aborted while it runs",
    "aborted from a callback",
    "submitted from a callback",
}


@dataclass
class Asked:
    """A request, and what was told of each of its answers."""

    prompt: list[int]
    sampling: Sampling
    told: list[list[int]] = field(default_factory=list)

    def __post_init__(self):
        self.told = [[] for _ in range(self.sampling.n)]


class Hour:
    """One engine at work; the seed decides everything.

    happened: how often each of HAPPENINGS did.
    """

    def __init__(self, seed: int, block_size: int, requests: int):
        self.random = random.Random(f"{seed} {block_size}")
        self.model = Llama(CONFIG, seed=seed).double()
        num_blocks = -(-SLOTS // block_size)
        self.engine = Engine(
            self.model,
            num_blocks,
            block_size,
            max_tokens=self.random.choice((5, 8, 20)),
            max_sequences=self.random.choice((3, 5)),
            prefix_caching=self.random.random() < 0.9,
        )
        self.to_submit = requests
        self.asked: dict[int, Asked] = {}
        self.live: set[int] = set()  # requests with an answer that is not finished
        self.begun: set[int] = set()  # numbers that had a chunk
        self.prefixes = [self._tokens(self.random.randint(3, 20)) for _ in range(3)]
        self.happened: Counter[str] = Counter()

    def run(self) -> None:
        while self.to_submit or self.live:
            while self.to_submit and len(self.live) < 6 and self.random.random() < 0.5:
                self._submit()
            if self.live and self.random.random() < 0.03:
                self._abort()
            busy = bool(self.live)
            step = self.engine.step()
            assert bool(step.chunks) == busy, f"{sorted(self.live)} live, and {step}"
            self._note(step)
            self._check_blocks()
        assert self.engine.cache.num_free == self.engine.cache.num_blocks
        assert self.engine.step() == Step()
        for number in self.asked:
            self._check_answers(number)
            if self.random.random() < 0.1:
                self._check_alone(number)

    # What clients do.

    def _tokens(self, count: int) -> list[int]:
        return [self.random.randrange(CONFIG.vocab_size) for _ in range(count)]

    def _submit(self) -> None:
        """A request that the cache has room for, if it were alone."""
        draw = self.random
        prefix = draw.choice(self.prefixes) if draw.random() < 0.7 else []
        prompt = prefix + self._tokens(draw.randint(0 if prefix else 1, 12))
        sampling = Sampling(
            max_new_tokens=draw.randint(1, 14),
            temperature=draw.choice((0.0, 0.7, 1.5)),
            top_k=draw.choice((None, 3)),
            top_p=draw.choice((1.0, 0.8)),
            seed=draw.randrange(1000),
            n=draw.choice((1, 1, 1, 2, 4)),
            stop_tokens=tuple(self._tokens(draw.choice((0, 0, 2)))),
            logprobs=draw.random() < 0.3,
        )
        asked = Asked(prompt, sampling)
        number = self.engine.submit(prompt, sampling, self._callback(asked))
        self.asked[number] = asked
        self.live.add(number)
        self.to_submit -= 1

    def _callback(self, asked: Asked):
        """Notes the tokens, and now and then does something that a client may do."""

        def told(sample: int, token: int) -> None:
            asked.told[sample].append(token)
            chance = self.random.random()
            if chance < 0.01 and self.to_submit:
                self._submit()
                self.happened["submitted from a callback"] += 1
            elif chance < 0.02 and self.live:
                self._abort()
                self.happened["aborted from a callback"] += 1

        return told

    def _abort(self) -> None:
        number = self.random.choice(sorted(self.live))
        runs = number in self.begun
        self.engine.abort(number)
        self.live.remove(number)
        self.happened["aborted while it runs" if runs else "aborted while it waits"] += 1

    # What must hold.

    def _note(self, step: Step) -> None:
        for chunk in step.chunks:
            if chunk.request not in self.begun and chunk.request in self.asked:
                self.happened["prefix found"] += chunk.start > 0
            self.begun.add(chunk.request)
        self.happened["preempted"] += len(step.preempted)
        self.happened["copied"] += len(step.copies)
        for number in sorted(self.live):
            answers = self.engine.completions(number)
            if all(answer.finish_reason for answer in answers):
                self.live.discard(number)

    def _check_blocks(self) -> None:
        cache, held = self.engine.cache, set()
        for number in self.live:
            for i, answer in enumerate(self.engine.completions(number)):
                if answer.finish_reason is None:
                    held |= set(_table(cache, number + i))
        assert cache.num_free + len(held) == cache.num_blocks, f"{cache.num_free} free, {held} held"

    def _check_answers(self, number: int) -> None:
        asked = self.asked[number]
        answers = self.engine.completions(number)
        assert len(answers) == asked.sampling.n
        for i, answer in enumerate(answers):
            where = f"answer {i} of request {number}, {asked}: {answer}"
            assert asked.told[i] == list(answer.tokens), where
            self._check_law(asked, i, answer, where)
            assert answer.finish_reason in _reasons(asked.sampling, answer), where
            self.happened["answered"] += answer.finish_reason != "abort"
            self.happened["stopped"] += answer.finish_reason == "stop"
            self.happened["forked"] += i > 0

    @torch.no_grad()
    def _check_law(self, asked: Asked, i: int, answer: Completion, where: str) -> None:
        """Each token is what the request draws, given those before it."""
        sampling, new = asked.sampling, len(answer.tokens)
        if new == 0:
            return
        tokens = torch.tensor(asked.prompt + list(answer.tokens))
        logits = self.model(tokens[None, :-1])[0, -new:]
        if sampling.temperature == 0:
            drawn = logits.argmax(-1)
        else:
            filters = (sampling.temperature, sampling.top_k, sampling.top_p)
            uniforms = torch.tensor([sampling.uniform(i, j) for j in range(new)])
            drawn = sample(next_token_probs(logits, *filters), uniforms)
        assert list(answer.tokens) == drawn.tolist(), where
        if sampling.logprobs:
            expected = logits.log_softmax(-1)[range(new), drawn]
            assert torch.allclose(torch.tensor(answer.logprobs).double(), expected), where

    def _check_alone(self, number: int) -> None:
        asked = self.asked[number]
        engine = Engine(self.model, num_blocks=60, block_size=4)
        alone = engine.submit(asked.prompt, asked.sampling)
        engine.run()
        pairs = zip(self.engine.completions(number), engine.completions(alone), strict=True)
        for got, expected in pairs:
            assert got.tokens == expected.tokens[: len(got.tokens)], f"{asked}: {got}, {expected}"
            assert got.finish_reason in ("abort", expected.finish_reason)


def _table(cache, number: int) -> list[int]:
    try:
        return cache.table(number)
    except ValueError:
        return []  # it waits


def _reasons(sampling: Sampling, answer: Completion) -> set[str]:
    """How it may have ended. An abort leaves less than all, and nothing ends behind a stop."""
    assert not set(answer.tokens[:-1]) & set(sampling.stop_tokens)
    if set(answer.tokens) & set(sampling.stop_tokens):
        return {"stop"}
    return {"length"} if len(answer.tokens) == sampling.max_new_tokens else {"abort"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.serving_hour")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first hour; then the next")
    options = parser.parse_args()
    torch.set_num_threads(1)
    end, seed, happened = time.monotonic() + 60 * options.minutes, options.seed, Counter()
    with Progress(transient=True) as progress:
        task = progress.add_task("seed", total=60 * options.minutes)
        while time.monotonic() < end:
            for block_size in BLOCK_SIZES:
                hour = Hour(seed, block_size, requests=100)
                try:
                    hour.run()
                except Exception:
                    print(f"failed: Hour(seed={seed}, block_size={block_size}, requests=100)")
                    raise
                happened += hour.happened
            seed += 1
            left = max(0.0, end - time.monotonic())
            progress.update(task, completed=60 * options.minutes - left, description=f"seed {seed}")
    print(f"seeds {options.seed} to {seed - 1}, block sizes {BLOCK_SIZES}: all right")
    print(*(f"{name}: {count:,}" for name, count in sorted(happened.items())), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
