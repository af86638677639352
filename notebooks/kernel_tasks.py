"""One task for each of the other kernels, of a model's size, for gpu_kernels.py.

A maker draws what a call gets, and knows what is right in float64, what PyTorch offers instead, and
what the task takes at least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

HALF = torch.float16


@dataclass(frozen=True)
class Task:
    """arguments: of the kernel's launcher. right: its answer in float64. in_torch: the best that
    PyTorch has, from inputs that lie as it wants them. bytes, flops: at least. dtype: of products.
    """

    shape: str
    arguments: tuple
    right: Callable[[], Tensor]
    in_torch: Callable[[], object]
    bytes: int
    flops: int
    dtype: str = "fp16"


class Draws:
    def __init__(self, device: str, seed: int):
        self.device, self._generator = device, torch.Generator(device).manual_seed(seed)

    def normal(self, *size: int, dtype: torch.dtype = HALF) -> Tensor:
        kind = {"generator": self._generator, "device": self.device}
        return torch.randn(size, **kind).to(dtype)

    def uniform(self, *size: int) -> Tensor:
        return torch.rand(size, generator=self._generator, device=self.device)

    def below(self, most: int, *size: int) -> Tensor:
        return torch.randint(most, size, generator=self._generator, device=self.device)

    def permutation(self, n: int) -> Tensor:
        return torch.randperm(n, generator=self._generator, device=self.device)

    def starts(self, lengths: tuple[int, ...]) -> Tensor:
        """Where each one's rows begin, and where the last one's end."""
        ends = torch.tensor((0, *lengths), device=self.device).cumsum(0)
        return ends.int()


def varlen_attention(device: str, seed: int, lengths=(2048, 1500, 300, 4096), heads=32) -> Task:
    draw, kv_heads, width = Draws(device, seed), heads // 4, 128
    starts, total = draw.starts(lengths), sum(lengths)
    q = draw.normal(total, heads, width)
    k, v = (draw.normal(total, kv_heads, width) for _ in "kv")
    own = torch.tensor(lengths, device=device).int()

    def attend(*given: Tensor) -> Tensor:
        outs = []
        for rows in zip(*(x.split(lengths) for x in given), strict=True):
            batch = (x[None].transpose(1, 2) for x in rows)
            out = F.scaled_dot_product_attention(*batch, is_causal=True, enable_gqa=True)
            outs.append(out[0].transpose(0, 1))
        return torch.cat(outs)

    return Task(
        f"prompts of {', '.join(map(str, lengths))} tokens, {heads}/{kv_heads} heads of {width}",
        (q, k, v, starts, own, max(lengths), width**-0.5, None, starts[:-1].contiguous(), None),
        lambda: attend(q.double(), k.double(), v.double()),
        lambda: attend(q, k, v),
        2 * (2 * q.numel() + 2 * k.numel()),
        sum(4 * n * (n + 1) // 2 for n in lengths) * heads * width,
    )


def int8_matmul(device: str, seed: int, rows=16, inputs=4096, outputs=14_336) -> Task:
    draw = Draws(device, seed)
    x = draw.normal(rows, inputs)
    x[:, draw.permutation(inputs)[:4]] *= 20
    codes = (draw.below(255, outputs, inputs) - 127).to(torch.int8)
    scales = 0.001 + 0.001 * draw.uniform(outputs)
    weight = (codes.float() * scales[:, None]).half()

    def right() -> Tensor:
        large = (x.abs() >= 6).any(0)
        small = x.float().masked_fill(large, 0)
        of_rows = small.abs().amax(1, keepdim=True) / 127
        rounded = (small / of_rows).round().double() * of_rows.double()
        wide = codes.double() * scales.double()[:, None]
        return rounded @ wide.T + x.double()[:, large] @ wide[:, large].T

    return Task(
        f"{rows} rows, {inputs} inputs, {outputs} outputs",
        (x, codes, scales, 6.0),
        right,
        lambda: x @ weight.T,
        codes.numel() + 4 * outputs + 2 * rows * (inputs + outputs),
        2 * rows * codes.numel(),
        "int8",
    )


def latent_decode(device: str, seed: int, batch=64, length=2048, heads=128) -> Task:
    draw, latent, rope, block = Draws(device, seed), 512, 64, 16
    q = draw.normal(batch, heads, latent + rope)
    tables = draw.permutation(batch * length // block).int().view(batch, -1)
    cache = draw.normal(tables.numel(), block, latent + rope)
    lengths = torch.full((batch,), length, device=device).int()
    scale, rows = 192**-0.5, cache[tables.long()].flatten(1, 2)

    def attend(q: Tensor, rows: Tensor) -> Tensor:
        weights = (q @ rows.transpose(1, 2) * scale).softmax(-1)
        return weights @ rows[..., :latent]

    queries = (x.contiguous() for x in q.split((latent, rope), -1))
    return Task(
        f"{batch} requests of {length} tokens, {heads} heads, latents of {latent} + {rope}",
        (*queries, cache, tables, lengths, length, scale),
        lambda: attend(q.double(), rows.double()),
        lambda: attend(q, rows),
        2 * (cache.numel() + q.numel() + batch * heads * latent),
        2 * batch * length * heads * (2 * latent + rope),
    )  # fmt: skip


def int4_matmul(device: str, seed: int, rows=1, inputs=4096, outputs=14_336, group=128) -> Task:
    draw, groups = Draws(device, seed), inputs // group
    x, codes = draw.normal(rows, inputs), draw.below(16, outputs, inputs)
    zeros, scales = draw.below(16, outputs, groups), 0.001 + 0.001 * draw.uniform(outputs, groups)
    steps = codes.unflatten(1, (groups, group)) - zeros[..., None]
    weight = (steps * scales[..., None]).flatten(1).half()

    def packed(values: Tensor) -> Tensor:
        eights = F.pad(values, (0, -values.shape[1] % 8)).unflatten(1, (-1, 8))
        words = (eights << (4 * torch.arange(8, device=device))).sum(-1)
        return (words - (words >> 31 << 32)).int()

    of_weight = codes.numel() // 2 + zeros.numel() // 2 + scales.numel() * 4
    return Task(
        f"{rows} rows, {inputs} inputs, {outputs} outputs, groups of {group}",
        (x, packed(codes), scales, packed(zeros), group),
        lambda: x.double() @ (steps.double() * scales.double()[..., None]).flatten(1).T,
        lambda: x @ weight.T,
        of_weight + 2 * rows * (inputs + outputs),
        2 * rows * codes.numel(),
    )  # fmt: skip


def chunked_linear_attention(device: str, seed: int, lengths=(1000, 1, 500, 64), heads=16) -> Task:
    draw, width = Draws(device, seed), 128
    total, starts = sum(lengths), draw.starts(lengths)
    q, k, v = (draw.normal(total, heads, width) * width**-0.25 for _ in "qkv")
    decay = -0.1 * draw.uniform(total, heads)
    state = draw.normal(len(lengths), heads, width, width, dtype=torch.float32)

    def recur() -> Tensor:
        outs, states = [], []
        for b, rows in enumerate(torch.arange(total, device=device).split(lengths)):
            now = state[b].double()
            for t in rows.tolist():
                now = decay[t].double().exp()[:, None, None] * now
                now = now + k[t].double()[..., None] * v[t].double()[:, None]
                outs.append((q[t].double()[:, None] @ now)[:, 0])
            states.append(now)
        return torch.cat([torch.stack(outs).flatten(), torch.stack(states).flatten()])

    def by_chunks(size: int = 64) -> list[Tensor]:
        outs = []
        for b, rows in enumerate(torch.arange(total, device=device).split(lengths)):
            now = state[b]
            for some in rows.split(size):
                qs, ks, vs = (x[some].transpose(0, 1) for x in (q, k, v))
                sums = decay[some].T.cumsum(-1)  # [N, C]
                gates = (sums[..., None] - sums[:, None]).tril().exp().tril()
                inside = (qs @ ks.mT * gates.half()) @ vs
                outs.append(inside + (qs @ now.half()) * sums.exp()[..., None].half())
                left = (sums[:, -1:] - sums).exp()[..., None].half()
                now = now * sums[:, -1].exp()[:, None, None] + (ks * left).mT @ vs
        return outs

    return Task(
        f"sequences of {', '.join(map(str, lengths))} tokens, {heads} heads of {width}",
        (q, k, v, decay, state, starts, max(lengths), 1.0),
        recur,
        by_chunks,
        2 * 4 * q.numel() + 4 * decay.numel() + 8 * state.numel(),
        4 * 2 * total * heads * width * width // 2,
    )


def rejection_sampling(device: str, seed: int, batch=64, drafted=4, vocab=128_256) -> Task:
    draw = Draws(device, seed)
    p, q = ((2 * draw.normal(batch, n, vocab).float()).softmax(-1) for n in (drafted, drafted + 1))
    p = (p + q[:, :-1]) / 2
    tokens = torch.multinomial(p.flatten(0, 1), 1).view(batch, drafted)
    counts = torch.full((batch,), drafted, device=device)
    uniforms = draw.uniform(batch, drafted + 1)

    def verify(dtype: torch.dtype) -> Tensor:
        wide_p = F.pad(p.to(dtype), (0, 0, 0, 1))
        wide_q, each = q.to(dtype), torch.arange(batch, device=device)
        at = tokens[..., None]
        ratios = (wide_q[:, :-1].gather(-1, at) / wide_p[:, :-1].gather(-1, at))[..., 0]
        kept = (uniforms[:, :-1] < ratios).long().cumprod(1).sum(1)
        ends = (wide_q[each, kept] - wide_p[each, kept]).clamp(min=0).cumsum(-1)
        drawn = torch.searchsorted(ends, uniforms[:, -1:].to(dtype) * ends[:, -1:], right=True)
        out = F.pad(tokens, (0, 1)).scatter(1, kept[:, None], drawn)
        return out.masked_fill(torch.arange(drafted + 1, device=device) > kept[:, None], -1)

    return Task(
        f"{batch} sequences, {drafted} drafted tokens, {vocab} tokens to choose from",
        (tokens, counts, p, q, uniforms),
        lambda: verify(torch.float64),
        lambda: verify(torch.float32),
        4 * batch * vocab,  # of the target's row; where a token is rejected, of the draft's too
        0,
    )


MAKERS: dict[str, Callable[..., Task]] = {
    make.__name__: make
    for make in (
        varlen_attention, int8_matmul, latent_decode, int4_matmul, chunked_linear_attention,
        rejection_sampling,
    )
}  # fmt: skip
