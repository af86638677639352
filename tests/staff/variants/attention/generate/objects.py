"""A row object per sequence that knows when it is finished; top-p by a threshold on sorted sums."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

Forward = Callable[[Tensor, Tensor], Tensor]


def next_token_probs(
    logits: Float[Tensor, "B V"],
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
) -> Float[Tensor, "B V"]:
    _check_filters(temperature, top_k, top_p)
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(dim=1), logits.shape[1]).float()
    probs = torch.softmax(logits.float() / temperature, dim=1)
    # Rank 0 is the most probable token; a stable sort ranks equals by their ids.
    ranks = probs.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    if top_k is not None:
        probs = probs.masked_fill(ranks >= top_k, 0)
        probs /= probs.sum(dim=1, keepdim=True)
    if top_p < 1:
        ordered = probs.sort(dim=1, descending=True, stable=True).values
        needed = (ordered.cumsum(dim=1) < top_p).sum(dim=1, keepdim=True) + 1
        probs = probs.masked_fill(ranks >= needed, 0)
        probs /= probs.sum(dim=1, keepdim=True)
    return probs


def sample(probs: Float[Tensor, "B V"], uniforms: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    below = probs.cumsum(dim=1) <= uniforms[:, None]
    tokens = below.sum(dim=1)
    # Where rounding left the sum short of u: the last token that can be drawn at all.
    width = probs.shape[1]
    last = width - 1 - (probs > 0).flip(1).int().argmax(dim=1)
    return torch.minimum(tokens, last)


@dataclass
class Row:
    limit: int
    stop_tokens: Collection[int]
    new: list[int] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        stopped = bool(self.new) and self.new[-1] in self.stop_tokens
        return stopped or len(self.new) >= self.limit


def generate(
    forward: Forward,
    prompts: list[list[int]],
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    uniforms: Float[Tensor, "B max_new"] | None = None,
    stop_tokens: Collection[int] = (),
    max_length: int | None = None,
) -> list[list[int]]:
    _check_filters(temperature, top_k, top_p)
    _check_request(prompts, max_new_tokens, temperature, uniforms, max_length)
    rows = []
    for prompt in prompts:
        room = max_new_tokens if max_length is None else max_length - len(prompt)
        rows.append(Row(min(room, max_new_tokens), stop_tokens))
    if all(row.finished for row in rows):
        return [row.new for row in rows]

    width = max(len(prompt) for prompt in prompts)
    tokens = torch.tensor([prompt + [0] * (width - len(prompt)) for prompt in prompts])
    num_tokens = torch.tensor([len(prompt) for prompt in prompts])
    logits = forward(tokens, num_tokens)
    logits = torch.stack([logits[b, len(prompt) - 1] for b, prompt in enumerate(prompts)])
    while True:
        probs = next_token_probs(logits, temperature, top_k, top_p)
        if temperature == 0:
            drawn = probs.argmax(dim=1)
        else:
            step = max(len(row.new) for row in rows)
            drawn = sample(probs, uniforms[:, step])
        for row, token in zip(rows, drawn.tolist(), strict=True):
            if not row.finished:
                row.new.append(token)
        going = [not row.finished for row in rows]
        if not any(going):
            return [row.new for row in rows]
        logits = forward(drawn.unsqueeze(1), torch.tensor(going).to(torch.int64))[:, 0]


def _check_filters(temperature: float, top_k: int | None, top_p: float) -> None:
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}, expected 0 or more")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k is {top_k}, expected None or at least 1")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}, expected more than 0 and at most 1")


def _check_request(
    prompts: list[list[int]],
    max_new_tokens: int,
    temperature: float,
    uniforms: Tensor | None,
    max_length: int | None,
) -> None:
    if not prompts:
        raise ValueError("prompts is empty, expected at least one prompt")
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompts[{row}] is empty, expected at least one token")
        if max_length is not None and len(prompt) > max_length:
            raise ValueError(f"prompts[{row}] has {len(prompt)} tokens, max_length is {max_length}")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens is {max_new_tokens}, expected 0 or more")
    if temperature > 0 and uniforms is None:
        raise ValueError("uniforms are missing: expected [B, max_new_tokens], as temperature > 0")
    expected = (len(prompts), max_new_tokens)
    if uniforms is not None and tuple(uniforms.shape) != expected:
        raise ValueError(f"uniforms are {list(uniforms.shape)}, expected {list(expected)}")
