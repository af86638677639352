"""Nothing is remembered between rounds: each reads all pairs anew, and each node its whole path.

The target gets the nodes of a tree depth first, in an order of its own.
"""

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
        width = features.shape[-1]
        left, right = self.join.weight.split(width, dim=1)
        x = features @ left.T + F.embedding(next_tokens, self.embedding) @ right.T
        return self.layer(x, cos_sin, attend)


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
    regression = cross_entropy = 0.0
    for i in range(1, features.shape[1]):
        real = is_real[:, i].float()
        d = (predicted[:, i - 1] - features[:, i]).abs()
        smooth = torch.where(d < 1, 0.5 * d.square(), d - 0.5).mean(dim=-1)
        law = logits[:, i].softmax(dim=-1)
        surprise = -(law * predicted_logits[:, i - 1].log_softmax(dim=-1)).sum(dim=-1)
        regression = regression + (smooth * real).sum()
        cross_entropy = cross_entropy + (surprise * real).sum()
    return (regression + 0.1 * cross_entropy) / is_real[:, 1:].sum()


def draft_chain(
    pairs: DrafterPast,
    head: Callable[[Tensor], Tensor],
    predicted: Float[Tensor, "D"],
    uniforms: Float[Tensor, "G"],
    temperature: float = 0.0,
) -> Draft:
    drafted: list[int] = []
    rows = []
    for i in range(len(uniforms)):
        feature = _along(pairs, predicted, drafted)
        rows.append(next_token_probs(head(feature[None]), temperature)[0])
        drafted.append(int(sample(rows[-1][None], uniforms[i : i + 1])))
    probs = torch.stack(rows)[None] if rows else None
    return Draft(torch.tensor([drafted], dtype=torch.int64), torch.tensor([len(drafted)]), probs)


def draft_tree(
    pairs: DrafterPast,
    head: Callable[[Tensor], Tensor],
    predicted: Float[Tensor, "D"],
    root: int,
    choices: Sequence[Choice],
) -> Int[Tensor, "T"]:
    token_of: dict[tuple[int, ...], int] = {}
    for choice in sorted(choices, key=len):
        path = [token_of[choice[:depth]] for depth in range(1, len(choice))]
        logits = head(_along(pairs, predicted, path)[None])[0]
        token_of[choice] = int(logits.sort(descending=True).indices[choice[-1]])
    return torch.tensor([root] + [token_of[choice] for choice in choices])


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
    new: list[int] = []
    known = None
    if uniforms is None:
        uniforms = torch.zeros(shape)
    r = 0
    while len(new) < max_new_tokens:
        if known is None:
            tokens, parents = torch.tensor(prompt), list(range(-1, len(prompt) - 1))
        else:
            text, missing = prompt + new, max_new_tokens - len(new)
            pairs = DrafterPast(drafter)
            count = len(known)
            causal = torch.arange(count)[:, None] >= torch.arange(count)
            everything = known, torch.tensor(text[1:]), torch.arange(count), causal
            predicted = pairs.feed(*everything)[-1]
            if is_chain:
                r += 1
                own = uniforms[r, : min(draft, missing - 1)]
                guess = draft_chain(pairs, past.logits, predicted, own, temperature)
                tokens = torch.tensor([text[-1], *guess.tokens[0].tolist()])
                parents = list(range(-1, len(tokens) - 1))
            else:
                usable = [choice for choice in draft if len(choice) < missing]
                tokens = draft_tree(pairs, past.logits, predicted, text[-1], usable)
                order = sorted(range(len(usable)), key=usable.__getitem__)  # depth first
                tokens = tokens[[0, *(1 + i for i in order)]]
                parents = tree_parents([usable[i] for i in order])
        before = past.length
        positions, mask = before + tree_depths(parents), tree_mask(parents, before)
        features = past.feed(tokens, positions, mask)
        if known is None:
            probs = next_token_probs(past.logits(features)[-1:], temperature)
            path = list(range(len(prompt)))
            gained = [int(sample(probs, uniforms[0].reshape(-1)[-1:]))]
        elif is_chain:
            probs = next_token_probs(past.logits(features), temperature)
            number = len(tokens) - 1
            accepting = torch.cat([uniforms[r, draft : draft + number], uniforms[r, -1:]])
            row = verify(guess, probs[None], accepting[None])[0].tolist()
            gained = [token for token in row if token >= 0]
            path = list(range(len(gained)))
        else:
            probs = next_token_probs(past.logits(features), temperature)
            path, last = accept_path(tokens, parents, probs, uniforms[len(new) :])
            gained = [int(tokens[node]) for node in path[1:]] + [last]
        past.keep(list(range(before)) + [before + node for node in path])
        kept = features[path]
        known = kept if known is None else torch.cat([known, kept])
        for token in gained:
            new.append(token)
            if token in stop_tokens:
                return new
    return new


def _along(pairs: DrafterPast, predicted: Tensor, tokens: list[int]) -> Tensor:
    """The feature predicted behind these tokens, which come after the sequence."""
    held = pairs.length
    for token in tokens:
        length = pairs.length
        visible = torch.full((1, length + 1), True)
        predicted = pairs.feed(
            predicted[None], torch.tensor([token]), torch.tensor([length]), visible
        )[0]
    pairs.truncate(held)
    return predicted
