"""The engine on the kernels that write, decode and prefill, in the lab: the same tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assignment.provided.lab.kernel import lab
from assignment.provided.models.toy import load_toy
from assignment.provided.serving import Sampling
from solutions.kernels.paged_attention import paged_attention
from solutions.kernels.store_kv import store_kv
from solutions.kernels.varlen_attention import varlen_attention
from solutions.serving.engine import Engine

SOME = torch.randint(3, 450, (60,), generator=torch.Generator().manual_seed(3)).tolist()
LONG = SOME[:37]
PROMPTS = [LONG, [7, 300, 9], [*LONG[:33], 5, 61], SOME[43:]]  # two begin alike: a prefix hit


class OnKernels:
    """`store` and `attention` of an engine: decodes by one kernel, prefill by the other."""

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()

    def run(self, function: Callable, *arguments) -> Tensor | None:
        """In any order of programs; raises if a kernel does what none may."""
        with lab(seed=self.launches.total()) as seen:
            result = function(*arguments)
        seen.check()
        self.launches.update(launch.kernel for launch in seen.launches)
        return result

    def store(self, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
        self.run(store_kv, k.contiguous(), v.contiguous(), k_cache, v_cache, slots)

    def attention(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_tables: Tensor,
        query_lengths: Tensor,
        kv_lengths: Tensor,
    ) -> Tensor:
        out, scale = torch.empty_like(q), q.shape[2] ** -0.5
        rows_of = torch.arange(len(q)).split(query_lengths.tolist())
        tables, lengths = block_tables.int().contiguous(), kv_lengths.int()
        is_decode = query_lengths == 1
        for chosen in (is_decode, ~is_decode):
            which = chosen.nonzero().flatten()
            if not len(which):
                continue
            rows = torch.cat([rows_of[i] for i in which.tolist()])
            given = q[rows].contiguous(), k_cache, v_cache
            if chosen is is_decode:
                longest = int(lengths[which].max())
                own = tables[which], lengths[which], longest, scale
                out[rows] = self.run(paged_attention, *given, *own)
            else:
                sizes = query_lengths[which].int()
                starts = torch.nn.functional.pad(sizes.cumsum(0), (1, 0)).int()
                own = starts, lengths[which], int(sizes.max()), scale, None, None, tables[which]
                out[rows] = self.run(varlen_attention, *given, *own)
        return out


def served(sampling: Sampling, **options) -> tuple[list[list[tuple[int, ...]]], int]:
    """All answers of all requests, and how many steps had both prefill and decodes in them."""
    engine = Engine(
        load_toy("draft"), 40, 8, max_tokens=16, max_sequences=5, prefix_caching=True, **options
    )
    first = engine.submit(PROMPTS[0], sampling)
    for _ in range(4):  # the first one's blocks are there when its twin comes
        engine.step()
    numbers = [first, *(engine.submit(prompt, sampling) for prompt in PROMPTS[1:])]
    mixed = 0
    while (step := engine.step()).chunks:
        mixed += len({len(chunk.tokens) > 1 for chunk in step.chunks}) == 2
    answers = [[one.tokens for one in engine.completions(number)] for number in numbers]
    return answers, mixed


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_same_tokens_as_in_torch(temperature):
    sampling = Sampling(max_new_tokens=6, temperature=temperature, seed=5, n=2)
    kernels = OnKernels()
    expected, _ = served(sampling)
    got, mixed = served(sampling, store=kernels.store, attention=kernels.attention)
    assert got == expected
    assert mixed > 1 and len({tuple(map(tuple, answers)) for answers in got}) == len(PROMPTS)
    assert len(kernels.launches) >= 3  # storing, decoding, prefill
