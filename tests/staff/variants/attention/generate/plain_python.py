"""Filters and draws with Python numbers, row by row; the loop keeps a list of live row numbers."""

import math
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
    return torch.stack([_row_probs(row, temperature, top_k, top_p) for row in logits.tolist()])


def _row_probs(logits: list[float], temperature: float, top_k: int | None, top_p: float) -> Tensor:
    vocab = range(len(logits))
    if temperature == 0:
        best = max(vocab, key=lambda token: (logits[token], -token))
        return torch.tensor([float(token == best) for token in vocab])
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    ranked = sorted(vocab, key=lambda token: weights[token], reverse=True)  # stable, like `sorted`
    ranked = ranked if top_k is None else ranked[:top_k]
    total = sum(weights[token] for token in ranked)
    if top_p < 1:
        nucleus, mass = [], 0.0
        while mass < top_p * total:
            nucleus.append(ranked[len(nucleus)])
            mass += weights[nucleus[-1]]
        ranked, total = nucleus, mass
    probs = torch.zeros(len(logits), dtype=torch.float64)
    for token in ranked:
        probs[token] = weights[token] / total
    return probs.float()


def sample(probs: Float[Tensor, "B V"], uniforms: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    return torch.tensor(
        [_draw(*row) for row in zip(probs.tolist(), uniforms.tolist(), strict=True)]
    )


def _draw(probs: list[float], u: float) -> int:
    token = 0
    for i, p in enumerate(probs):
        if p == 0:
            continue
        token = i
        if u < p:
            break
        u -= p
    return token


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
    answers: list[list[int]] = [[] for _ in prompts]
    room = [
        min(max_new_tokens, math.inf if max_length is None else max_length - len(prompt))
        for prompt in prompts
    ]
    live = [row for row in range(len(prompts)) if room[row] > 0]
    feed = {row: prompt for row, prompt in enumerate(prompts)}
    while live:
        logits = _feed(forward, feed, len(prompts))
        probs = next_token_probs(logits, temperature, top_k, top_p)
        feed = {}
        for row in live:
            u = 0.0 if uniforms is None else float(uniforms[row, len(answers[row])])
            token = _draw(probs[row].tolist(), u)
            answers[row].append(token)
            if token not in stop_tokens and len(answers[row]) < room[row]:
                feed[row] = [token]
        live = list(feed)
    return answers


def _feed(forward: Forward, feed: dict[int, list[int]], batch_size: int) -> Tensor:
    """Logits after the last token of each row in `feed`, [B, V]; zeros elsewhere."""
    width = max(map(len, feed.values()))
    tokens = torch.zeros(batch_size, width, dtype=torch.int64)
    num_tokens = torch.zeros(batch_size, dtype=torch.int64)
    for row, new in feed.items():
        tokens[row, : len(new)] = torch.tensor(new)
        num_tokens[row] = len(new)
    logits = forward(tokens, num_tokens)
    last = torch.zeros(batch_size, logits.shape[-1])
    for row, new in feed.items():
        last[row] = logits[row, len(new) - 1]
    return last


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
