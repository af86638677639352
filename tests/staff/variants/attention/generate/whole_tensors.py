"""No Python loop over rows: masks for finished rows, and the answer grows by torch.cat."""

from collections.abc import Callable, Collection

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
    batch, vocab = logits.shape
    if temperature == 0:
        probs = torch.zeros(batch, vocab)
        probs[torch.arange(batch), logits.argmax(-1)] = 1
        return probs
    scaled = logits.float() / temperature
    order = torch.argsort(scaled, dim=-1, descending=True, stable=True)
    sorted_logits = scaled.gather(-1, order)
    if top_k is not None:
        sorted_logits[:, top_k:] = float("-inf")
    sorted_probs = sorted_logits.softmax(-1)
    if top_p != 1:
        before = sorted_probs.cumsum(-1) - sorted_probs
        sorted_logits[before >= top_p] = float("-inf")
        sorted_probs = sorted_logits.softmax(-1)
    probs = torch.empty_like(sorted_probs)
    probs.scatter_(-1, order, sorted_probs)
    return probs


def sample(probs: Float[Tensor, "B V"], uniforms: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    """The pieces lie from the most to the least probable: fewer of them to go through."""
    pieces, order = probs.sort(dim=-1, descending=True)
    ends = pieces.double().cumsum(-1)
    inside = (ends / ends[:, -1:] > uniforms[:, None]) & (pieces > 0)
    first = inside.int().argmax(-1, keepdim=True)
    return order.gather(-1, first)[:, 0]


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
    batch = len(prompts)
    prompt_lengths = torch.tensor([len(prompt) for prompt in prompts])
    limits = torch.full((batch,), max_new_tokens)
    if max_length is not None:
        limits = torch.minimum(limits, max_length - prompt_lengths)
    stops = torch.tensor(sorted(stop_tokens), dtype=torch.int64)

    nested = [torch.tensor(prompt) for prompt in prompts]
    tokens = torch.nn.utils.rnn.pad_sequence(nested, batch_first=True)
    fed, active = prompt_lengths, limits > 0
    new = torch.zeros(batch, 0, dtype=torch.int64)
    count = torch.zeros(batch, dtype=torch.int64)
    for i in range(int(limits.max())):
        if not active.any():
            break
        logits = forward(tokens, fed)
        index = (fed - 1).clamp(min=0)[:, None, None].expand(-1, 1, logits.shape[-1])
        probs = next_token_probs(logits.gather(1, index)[:, 0], temperature, top_k, top_p)
        u = torch.zeros(batch) if uniforms is None else uniforms[:, i]
        tokens = sample(probs, u)[:, None]
        new = torch.cat([new, tokens], dim=1)
        count += active
        active = active & (count < limits) & ~torch.isin(tokens[:, 0], stops)
        fed = active.long()
    return [row[:n].tolist() for row, n in zip(new, count, strict=True)]


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
