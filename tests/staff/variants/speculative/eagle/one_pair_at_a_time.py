"""A loop for chains and one for trees; pairs are read one by one, trees depth first."""

from collections.abc import Callable, Collection, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LlamaConfig
from assignment.provided.models.blocks import Layer, Linear
from assignment.provided.models.llama import attend_causally
from assignment.provided.models.rotary import angles_at
from assignment.provided.speculative import Draft, TreePast

from ..attention.generate import next_token_probs, sample
from .medusa import Choice, accept_path, tree_depths, tree_mask, tree_parents
from .verification import verify


class EagleDrafter(nn.Module):
    def __init__(self, config: LlamaConfig, embedding: Float[Tensor, "V D"]):
        super().__init__()
        self.config = config
        self.register_buffer("embedding", embedding, persistent=False)
        self.join = Linear(2 * config.d_model, config.d_model)
        self.layer = Layer(config)

    def forward(
        self,
        features: Float[Tensor, "B P D"],
        next_tokens: Int[Tensor, "B P"],
        positions: Int[Tensor, "B P"] | None = None,
        attend: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    ) -> Float[Tensor, "B P D"]:
        positions = torch.arange(features.shape[1])[None] if positions is None else positions
        angles = angles_at(positions, self.config.head_dim, self.config.rope_theta)[:, None]
        cos_sin = angles.cos(), angles.sin()
        attend = attend or (lambda q, k, v: attend_causally(0, q, k, v))
        x = torch.cat((features, self.embedding[next_tokens]), 2)
        return self.layer(F.linear(x, self.join.weight), cos_sin, attend)


class DrafterPast:
    def __init__(self, drafter: EagleDrafter):
        self.drafter, sizes = drafter, drafter.config
        empty = torch.zeros(1, sizes.num_kv_heads, 0, sizes.head_dim)
        self._keys_values = empty, empty

    @property
    def length(self) -> int:
        return self._keys_values[0].shape[2]

    @torch.no_grad()
    def feed(
        self,
        features: Float[Tensor, "P D"],
        next_tokens: Int[Tensor, "P"],
        positions: Int[Tensor, "P"],
        mask: Bool[Tensor, "P S"],
    ) -> Float[Tensor, "P D"]:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self._keys_values
            self._keys_values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
            return F.scaled_dot_product_attention(q, *self._keys_values, mask, enable_gqa=True)

        return self.drafter(features[None], next_tokens[None], positions[None], attend)[0]

    def truncate(self, length: int) -> None:
        keys, values = self._keys_values
        self._keys_values = keys[:, :, :length], values[:, :, :length]


def eagle_loss(
    predicted: Float[Tensor, "B P D"],
    predicted_logits: Float[Tensor, "B P V"],
    features: Float[Tensor, "B T D"],
    logits: Float[Tensor, "B T V"],
    is_real: Bool[Tensor, "B T"],
) -> Float[Tensor, ""]:
    weight = is_real[:, 1:, None].float()
    pairs = weight.sum()
    regression = F.smooth_l1_loss(predicted, features[:, 1:], reduction="none") * weight
    log_p, q = predicted_logits.log_softmax(-1), logits[:, 1:].softmax(-1)
    cross_entropy = -(q * log_p * weight).sum() / pairs
    return regression.sum() / (pairs * features.shape[-1]) + 0.1 * cross_entropy


def draft_chain(
    pairs: DrafterPast,
    head: Callable[[Tensor], Tensor],
    predicted: Float[Tensor, "D"],
    uniforms: Float[Tensor, "G"],
    temperature: float = 0.0,
) -> Draft:
    held, feature = pairs.length, predicted
    vocab = head(predicted[None]).shape[-1]
    tokens = torch.zeros(1, len(uniforms), dtype=torch.int64)
    probs = torch.zeros(1, len(uniforms), vocab)
    for i in range(len(uniforms)):
        probs[:, i] = next_token_probs(head(feature[None]), temperature)
        tokens[:, i] = sample(probs[:, i], uniforms[i : i + 1])
        feature = _read(pairs, feature, int(tokens[0, i]))  # also the last, which is not needed
    pairs.truncate(held)
    return Draft(tokens, torch.tensor([len(uniforms)]), probs)


def draft_tree(
    pairs: DrafterPast,
    head: Callable[[Tensor], Tensor],
    predicted: Float[Tensor, "D"],
    root: int,
    choices: Sequence[Choice],
) -> Int[Tensor, "T"]:
    below: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for choice in choices:
        below.setdefault(choice[:-1], []).append(choice)
    tokens: dict[tuple[int, ...], int] = {(): root}

    def walk(choice: tuple[int, ...], feature: Tensor) -> None:
        ranked = head(feature[None])[0].argsort(descending=True, stable=True)
        for child in below[choice]:
            tokens[child] = int(ranked[child[-1]])
            if child in below:
                length = pairs.length
                walk(child, _read(pairs, feature, tokens[child]))
                pairs.truncate(length)

    if choices:
        walk((), predicted)
    return torch.tensor([tokens[choice] for choice in [(), *choices]])


def eagle_generate(
    past: TreePast,
    drafter: EagleDrafter,
    prompt: list[int],
    max_new_tokens: int,
    draft: int | Sequence[Choice],
    *,
    temperature: float = 0.0,
    uniforms: Float[Tensor, "max_new *width"] | None = None,
    stop_tokens: Collection[int] = (),
) -> list[int]:
    is_chain = isinstance(draft, int)
    shape = (max_new_tokens, 2 * draft + 1) if is_chain else (max_new_tokens,)
    if not prompt or min(shape) < 0:
        raise ValueError(f"expected a prompt and sizes ≥ 0, got {prompt}, uniforms {list(shape)}")
    if (uniforms is None and temperature > 0) or (uniforms is not None and uniforms.shape != shape):
        raise ValueError(f"expected uniforms of shape {list(shape)}, and some at a temperature > 0")
    if max_new_tokens == 0:
        return []
    if uniforms is None:
        uniforms = torch.zeros(shape)
    run = _chains if is_chain else _trees
    new = []
    steps = run(past, drafter, list(prompt), max_new_tokens, draft, temperature, uniforms)
    for token in steps:
        new.append(token)
        if token in stop_tokens or len(new) == max_new_tokens:
            break
    return new


def _read(pairs: DrafterPast, feature: Tensor, token: int) -> Tensor:
    """One pair behind all that is held."""
    sees = torch.ones(1, pairs.length + 1, dtype=torch.bool)
    return pairs.feed(feature[None], torch.tensor([token]), torch.tensor([pairs.length]), sees)[0]


def _feed(past: TreePast, tokens: list[int]) -> Tensor:
    held, count = past.length, len(tokens)
    mask = torch.ones(count, held + count, dtype=torch.bool).tril(held)
    return past.feed(torch.tensor(tokens), held + torch.arange(count), mask)


def _chains(past, drafter, text, total, num_draft, temperature, uniforms):
    end, pairs = len(text) + total, DrafterPast(drafter)
    features = list(_feed(past, text))
    probs = next_token_probs(past.logits(features[-1][None]), temperature)
    text.append(int(sample(probs, uniforms[0, -1:])))
    yield text[-1]
    for row in uniforms[1:]:
        number = min(num_draft, end - len(text) - 1)
        if number < 0:
            return
        for i, feature in enumerate(features):
            predicted = _read(pairs, feature, text[len(text) - len(features) + i])
        guess = draft_chain(pairs, past.logits, predicted, row[:number], temperature)
        drafted = guess.tokens[0].tolist()
        held = past.length
        found = _feed(past, [text[-1], *drafted])
        target = next_token_probs(past.logits(found), temperature)
        checks = torch.cat([row[num_draft : num_draft + number], row[-1:]])
        gained = verify(guess, target[None], checks[None])[0]
        gained = gained[gained >= 0].tolist()
        past.keep(range(held + len(gained)))
        features = list(found[: len(gained)])
        text += gained
        yield from gained


def _trees(past, drafter, text, total, choices, temperature, uniforms):
    start, pairs = len(text), DrafterPast(drafter)
    features = list(_feed(past, text))
    probs = next_token_probs(past.logits(features[-1][None]), temperature)
    text.append(int(sample(probs, uniforms[:1])))
    yield text[-1]
    while len(text) < start + total:
        for i, feature in enumerate(features):
            predicted = _read(pairs, feature, text[len(text) - len(features) + i])
        done = len(text) - start
        usable = [choice for choice in choices if len(choice) < total - done]
        tokens = draft_tree(pairs, past.logits, predicted, text[-1], usable)
        parents, held = tree_parents(usable), past.length
        found = past.feed(tokens, held + tree_depths(parents), tree_mask(parents, held))
        probs = next_token_probs(past.logits(found), temperature)
        path, last = accept_path(tokens, parents, probs, uniforms[done:])
        past.keep([*range(held)] + [held + node for node in path])
        features = [found[node] for node in path]
        gained = [int(tokens[node]) for node in path[1:]] + [last]
        text += gained
        yield from gained
