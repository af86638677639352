"""What the attention unit's answers are checked against: slow, plain, and in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assignment.provided.models import LlamaConfig


class CacheOracle:
    """A cache in its plainest form: for each row, the keys and the values of its tokens."""

    def __init__(self, batch_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype):
        nothing = torch.zeros(num_kv_heads, 0, head_dim, dtype=dtype)
        self.keys = [nothing] * batch_size
        self.values = [nothing] * batch_size

    @property
    def lengths(self) -> Tensor:
        return torch.tensor([keys.shape[1] for keys in self.keys])

    def append(self, k: Tensor, v: Tensor, num_tokens: Tensor | None = None) -> None:
        for row, new in enumerate([k.shape[2]] * len(k) if num_tokens is None else num_tokens):
            self.keys[row] = torch.cat([self.keys[row], k[row, :, :new]], dim=1)
            self.values[row] = torch.cat([self.values[row], v[row, :, :new]], dim=1)

    def truncate(self, lengths: Tensor) -> None:
        self.keys = [keys[:, :n] for keys, n in zip(self.keys, lengths, strict=True)]
        self.values = [values[:, :n] for values, n in zip(self.values, lengths, strict=True)]


def padded(rows: list[Tensor]) -> Tensor:
    """[B, K, S, H] of rows [K, n, H]; what lies past a row's length is finite and large."""
    longest = max(row.shape[1] for row in rows)
    result = torch.full((len(rows), rows[0].shape[0], longest, rows[0].shape[2]), 1e4)
    for row, tokens in enumerate(rows):
        result[row, :, : tokens.shape[1]] = tokens
    return result


def visible(
    num_queries: int, num_keys: int, kv_lengths: Tensor | None, num_tokens: Tensor | None, rows: int
) -> Tensor:
    """causal_mask, entry by entry from its definition: [rows, num_queries, num_keys]."""
    held = [num_keys] * rows if kv_lengths is None else kv_lengths.tolist()
    new = [num_queries] * rows if num_tokens is None else num_tokens.tolist()
    mask = [
        [
            [key < held[row] and key <= held[row] - new[row] + query for key in range(num_keys)]
            for query in range(num_queries)
        ]
        for row in range(rows)
    ]
    return torch.tensor(mask)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_lengths: Tensor | None = None,
    num_tokens: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Textbook attention, head by head, scores and softmax in `dtype`."""
    group = q.shape[1] // k.shape[1]
    mask = visible(q.shape[2], k.shape[2], kv_lengths, num_tokens, len(q))
    out = torch.zeros(q.shape, dtype=dtype)
    for head in range(q.shape[1]):
        keys, values = (x[:, head // group].to(dtype) for x in (k, v))
        scores = q[:, head].to(dtype) @ keys.transpose(1, 2) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
        out[:, head] = weights.nan_to_num(0.0) @ values
    return out


def out_of_luck(naive: Tensor, expected: Tensor, level: float) -> Tensor:
    """`naive`, as far off as scores near `level` make a right answer now and then: float32 knows
    them up to level · 2⁻²³, and so the weights up to that share of themselves."""
    share = abs(level) * 2.0**-23
    return naive + (naive.double() - expected).sign() * share * expected.abs().max()


def rope_angles(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> Tensor:
    """position · theta^(−2i / head_dim)."""
    frequencies = [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    return positions[..., None].to(dtype) * torch.tensor(frequencies, dtype=dtype)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Each pair (x[i], x[i + H/2]) as a complex number, times e^(i · angle)."""
    first, second = x.to(angles.dtype).chunk(2, dim=-1)
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat([turned.real, turned.imag], dim=-1)


def attention_layer(
    x: Tensor, weights: dict[str, Tensor], head_dim: int, theta: float, dtype: torch.dtype
) -> Tensor:
    """The whole sequence through an attention layer; every step's result rounded to `dtype`."""
    wide = torch.promote_types(dtype, torch.float32)
    x, weights = x.to(dtype), {name: weight.to(dtype) for name, weight in weights.items()}

    def heads(projection: str) -> Tensor:
        return (x @ weights[f"{projection}.weight"].T).unflatten(-1, (-1, head_dim)).transpose(1, 2)

    q, k, v = heads("q_proj"), heads("k_proj"), heads("v_proj")
    positions = torch.arange(x.shape[1])[None].expand(len(x), -1)
    angles = rope_angles(positions, head_dim, theta, wide)
    q, k = rotate(q, angles).to(dtype), rotate(k, angles).to(dtype)
    out = attention(q, k, v, dtype=wide).to(dtype)
    return out.transpose(1, 2).flatten(2) @ weights["o_proj.weight"].T


def next_token_probs(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float, dtype: torch.dtype
) -> Tensor:
    """The filtered distribution, token by token in the order of probability."""
    probs = torch.softmax(logits.to(dtype) / temperature, dim=-1)
    result = torch.zeros_like(probs)
    for row, row_probs in enumerate(probs):
        ranked = sorted(range(len(row_probs)), key=lambda i: (-row_probs[i].item(), i))
        kept = ranked[:top_k]
        total = float(row_probs[kept].double().sum())
        nucleus, mass = [], 0.0
        for token in kept:
            if mass >= top_p:
                break
            nucleus.append(token)
            mass += row_probs[token].item() / total
        if top_p == 1:
            nucleus = kept
        result[row, nucleus] = row_probs[nucleus] / row_probs[nucleus].sum()
    return result


def greedy(model, prompt: list[int], max_new_tokens: int, stop_tokens=()) -> list[int]:
    """The most probable token, again and again; the whole sequence through the model each time."""
    new: list[int] = []
    while len(new) < max_new_tokens and not (new and new[-1] in stop_tokens):
        new.append(int(model(torch.tensor([prompt + new]))[0, -1].argmax()))
    return new


LLAMA = LlamaConfig(1000, 4, d_model=256, num_heads=8, num_kv_heads=2, head_dim=32, d_ff=704)
"""The model whose FLOPs `attention.generate` is graded by; nobody needs to build it."""


def flops(config: LlamaConfig, calls: list[tuple[int, int, int]]) -> int:
    """FLOPs of a Llama's matrix products over calls of (rows, columns, tokens attended to).

    Each column, padding too, goes through all projections and the head, and attends to as many
    tokens as the longest row holds: 2 FLOPs for each weight, 4·H for each pair and query head.
    """
    query_width = config.num_heads * config.head_dim
    kv_width = config.num_kv_heads * config.head_dim
    layer = 2 * config.d_model * (query_width + kv_width) + 3 * config.d_model * config.d_ff
    weights = config.num_layers * layer + config.d_model * config.vocab_size
    pair = 4 * config.num_layers * query_width
    return sum(rows * columns * (2 * weights + pair * seen) for rows, columns, seen in calls)
