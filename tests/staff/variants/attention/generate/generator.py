"""A generator yields step by step, as a streaming server would; draws from the far end."""

from collections.abc import Callable, Collection, Iterator

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
    logits = logits.to(torch.float64)
    if temperature == 0:
        first = logits == logits.amax(dim=-1, keepdim=True)
        first &= first.cumsum(dim=-1) == 1  # of equals the first
        return first.float()
    probs = (logits / temperature).log_softmax(dim=-1).exp()
    kept = torch.ones_like(probs, dtype=torch.bool)
    order = probs.sort(dim=-1, descending=True, stable=True).indices
    if top_k is not None:
        kept = torch.zeros_like(kept).scatter(-1, order[:, :top_k], True)
        probs = _share(probs * kept)
    if top_p < 1:
        for row in range(len(probs)):
            mass = probs[row, order[row]].cumsum(0)
            size = int(torch.searchsorted(mass, top_p)) + 1
            kept[row, order[row, size:]] = False
        probs = _share(probs * kept)
    return probs.float()


def _share(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=-1, keepdim=True)


def sample(probs: Float[Tensor, "B V"], uniforms: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    # From the far end: token V − 1 owns the first piece.
    ends = probs.double().flip(-1).cumsum(dim=-1)
    place = (uniforms.double() * ends[:, -1]).unsqueeze(-1)
    return probs.shape[-1] - 1 - (ends > place).byte().argmax(dim=-1)


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
    limits = [max_new_tokens] * len(prompts)
    if max_length is not None:
        limits = [min(limit, max_length - len(p)) for limit, p in zip(limits, prompts, strict=True)]
    if uniforms is None:
        uniforms = torch.full((len(prompts), max_new_tokens), 0.5)

    def choose(logits: Tensor, step: int) -> Tensor:
        return sample(next_token_probs(logits, temperature, top_k, top_p), uniforms[:, step])

    answers: list[list[int]] = [[] for _ in prompts]
    for step in _steps(forward, prompts, limits, choose, stop_tokens):
        for row, token in step.items():
            answers[row].append(token)
    return answers


def _steps(
    forward: Forward, prompts: list[list[int]], limits: list[int], choose: Callable, stop_tokens
) -> Iterator[dict[int, int]]:
    """The new token of each unfinished row, step by step."""
    live = {row for row, limit in enumerate(limits) if limit > 0}
    longest = max(map(len, prompts))
    tokens = torch.tensor([(prompt * longest)[:longest] for prompt in prompts])  # any padding
    num_tokens = torch.tensor(list(map(len, prompts)))
    for step in range(max(limits)):
        if not live:
            return
        logits = forward(tokens, num_tokens)
        rows = torch.arange(len(prompts))
        chosen = choose(logits[rows, (num_tokens - 1).clamp(min=0)], step)
        yield {row: int(chosen[row]) for row in sorted(live)}
        live -= {row for row in live if int(chosen[row]) in stop_tokens}
        live -= {row for row in live if step + 1 == limits[row]}
        tokens = chosen.view(-1, 1)
        num_tokens = torch.tensor([int(row in live) for row in range(len(prompts))])


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
