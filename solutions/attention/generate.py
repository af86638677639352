"""Generation: one pass over the prompt (prefill), then one pass per token (decode).

`generate_uncached` is the specification: for every token, the whole sequence so far goes through
the model. `generate` gives the same tokens from a model that keeps a KV cache: a step feeds each
sequence's newest token and nothing else, and a batch of unequal prompts shares the steps.
Randomness is an argument, `uniforms`: then the law of a sampler can be computed, not only sampled.

Top-k: Fan et al., 2018, arXiv:1805.04833. Top-p (nucleus): Holtzman et al., 2019, arXiv:1904.09751.

Axes: B sequences, T tokens fed in one call, V vocabulary.
"""

from collections.abc import Callable, Collection

import torch
from jaxtyping import Float, Int
from torch import Tensor

Forward = Callable[[Tensor, Tensor], Tensor]
"""(tokens [B, T], num_tokens [B]) -> logits [B, T, V], for a model that keeps a KV cache.

Appends the first num_tokens[b] tokens of row b (0 … T of them) to what the model has seen of that
row. logits[b, t] are for the token after tokens[b, t]; those of padding columns mean nothing.
"""


def next_token_probs(
    logits: Float[Tensor, "B V"],
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
) -> Float[Tensor, "B V"]:
    """The distribution that the next token is drawn from, in float32 at least.

    In this order, for each row by itself:
      1. temperature: softmax(logits / temperature). At 0, all mass goes to the largest logit, and
         the rest changes nothing.
      2. top-k: keep the top_k most probable tokens (all, if None or more than V); renormalise.
      3. top-p: keep the smallest set of most probable tokens whose sum is ≥ top_p (the token that
         reaches top_p included; all, if 1); renormalise. Where rounding decides whether a sum
         reaches top_p, either set is right.
    Of equally probable tokens, the one with the lower id counts as the more probable. `logits` are
    not changed; −inf is a token of probability 0.

    Raises:
        ValueError: temperature < 0, top_k < 1, or top_p not in (0, 1].

    Hint: filter in sorted order (`stable=True`), then scatter back. About 14 lines.
    """
    _check_filters(temperature, top_k, top_p)
    # BEGIN SOLUTION
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature == 0:
        best = logits.argmax(dim=-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1.0)

    probs = torch.softmax(logits / temperature, dim=-1)
    probs, ids = probs.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        probs = _renormalise(probs, keep=torch.arange(probs.shape[-1]) < top_k)
    if top_p < 1:
        mass_before = probs.cumsum(dim=-1).roll(1, dims=-1)
        mass_before[:, 0] = 0  # the most probable token always stays
        probs = _renormalise(probs, keep=mass_before < top_p)
    return torch.zeros_like(probs).scatter(-1, ids, probs)
    # END SOLUTION


# BEGIN SOLUTION
def _renormalise(probs: Float[Tensor, "B V"], keep: Tensor) -> Float[Tensor, "B V"]:
    kept = probs * keep
    return kept / kept.sum(dim=-1, keepdim=True)


# END SOLUTION


def sample(probs: Float[Tensor, "B V"], uniforms: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    """One token a row, drawn by inverting the cumulative distribution; int64.

    Lay the tokens' probabilities end to end on [0, 1), in any order you like: the answer is the
    token on whose piece uniforms[b] lies. So token i is drawn for a share probs[b, i] of all u.

    Args:
        probs: each row sums to 1, up to a rounding of 10⁻⁶.
        uniforms: float32 in [0, 1). Each must give a token of probability > 0, also 0 and the
            largest, 1 − 2⁻²⁴, which the sum of the probabilities may not reach.

    Hint: `cumsum` and `searchsorted`. In float64, with u stretched to the sum, neither end of
    [0, 1) needs a special case. About 3 lines.
    """
    # BEGIN SOLUTION
    ends = probs.double().cumsum(dim=-1)
    targets = uniforms.double()[:, None] * ends[:, -1:]  # below the last end, whatever its rounding
    # right=True: the first end above the target. A token of probability 0 ends where it starts.
    return torch.searchsorted(ends, targets, right=True)[:, 0]
    # END SOLUTION


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
    """Continue every prompt; the new tokens of each, without the prompt.

    The first call of `forward(tokens, num_tokens)` feeds all prompts, padded on the right with any
    valid token, such as 0. Each later call feeds one column: for every unfinished row the token it
    just got; finished rows have num_tokens 0, and their token is ignored. A row is finished when it
    has max_new_tokens new tokens, or max_length tokens with its prompt, or its newest is one of
    `stop_tokens` (which stays in the answer). There is no call after the last row finished, so the
    last token of a row is never fed.

    Args:
        forward: see `Forward`; call it with two positional arguments.
        prompts: at least one, of at least one token each.
        temperature, top_k, top_p: see `next_token_probs`.
        uniforms: new token i of row b uses uniforms[b, i], whatever other rows do. Needed when
            temperature > 0, else unused.
        max_length: most tokens of a row, prompt included, such as the capacity of the cache.

    Raises:
        ValueError: no prompts, an empty prompt or one longer than max_length, a negative
            max_new_tokens, uniforms missing or of another shape, or what `next_token_probs`
            refuses.

    A row's tokens do not depend on the other rows of the batch. Hint: per row, keep its new tokens
    and how many it may have. About 25 lines.
    """
    _check_filters(temperature, top_k, top_p)
    _check_request(prompts, max_new_tokens, temperature, uniforms, max_length)
    # BEGIN SOLUTION
    limits = [_limit(prompt, max_new_tokens, max_length) for prompt in prompts]
    new_tokens: list[list[int]] = [[] for _ in prompts]
    if uniforms is None:  # greedy: every u gives the one token with mass
        uniforms = torch.zeros(len(prompts), max_new_tokens)

    tokens, num_tokens = _pad(prompts)
    unfinished = [limit > 0 for limit in limits]
    step = 0
    while any(unfinished):
        logits = forward(tokens, num_tokens)
        last = logits[torch.arange(len(prompts)), num_tokens - 1]  # a finished row's is not used
        chosen = sample(next_token_probs(last, temperature, top_k, top_p), uniforms[:, step])
        for row, token in enumerate(chosen.tolist()):
            if unfinished[row]:
                new_tokens[row].append(token)
                full = len(new_tokens[row]) == limits[row]
                unfinished[row] = not full and token not in stop_tokens
        tokens, num_tokens = chosen[:, None], torch.tensor(unfinished).long()
        step += 1
    return new_tokens
    # END SOLUTION


# BEGIN SOLUTION
def _pad(prompts: list[list[int]]) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B"]]:
    num_tokens = torch.tensor([len(prompt) for prompt in prompts])
    rows = [torch.tensor(prompt) for prompt in prompts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), num_tokens


# END SOLUTION


def generate_uncached(
    model: Callable[[Tensor], Tensor],
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
    """What `generate` must return, without a cache: the whole sequence for every token.

    `model(tokens [1, T])` gives logits [1, T, V]. T tokens after a prompt of S cost T·S + T²/2
    tokens of work instead of S + T. Given: read it first; it needs your two functions above.
    """
    _check_filters(temperature, top_k, top_p)
    _check_request(prompts, max_new_tokens, temperature, uniforms, max_length)
    if uniforms is None:
        uniforms = torch.zeros(len(prompts), max_new_tokens)
    answers = []
    for prompt, row_uniforms in zip(prompts, uniforms, strict=True):
        new_tokens: list[int] = []
        for i in range(_limit(prompt, max_new_tokens, max_length)):
            logits = model(torch.tensor([prompt + new_tokens]))
            probs = next_token_probs(logits[:, -1], temperature, top_k, top_p)
            new_tokens.append(int(sample(probs, row_uniforms[i : i + 1])))
            if new_tokens[-1] in stop_tokens:
                break
        answers.append(new_tokens)
    return answers


def _limit(prompt: list[int], max_new_tokens: int, max_length: int | None) -> int:
    """How many new tokens this prompt may get."""
    return max_new_tokens if max_length is None else min(max_new_tokens, max_length - len(prompt))


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
