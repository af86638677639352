"""Whole depths at once, padded to a rectangle; what is held is read again in every depth."""

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
        tokens = self.embedding[next_tokens]
        pairs = torch.stack([features, tokens], dim=-2).flatten(-2)
        return self.layer(self.join(pairs), cos_sin, attend)


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
    real = is_real[:, 1:]
    d = predicted[real] - features[:, 1:][real]
    regression = F.huber_loss(d, torch.zeros_like(d), delta=1.0)
    p = predicted_logits[real].log_softmax(dim=-1)
    q = logits[:, 1:][real].log_softmax(dim=-1)
    entropy = -(q.exp() * q).sum(dim=-1).mean()
    return regression + 0.1 * (entropy + F.kl_div(p, q, reduction="batchmean", log_target=True))


def draft_chain(
    pairs: DrafterPast,
    head: Callable[[Tensor], Tensor],
    predicted: Float[Tensor, "D"],
    uniforms: Float[Tensor, "G"],
    temperature: float = 0.0,
) -> Draft:
    held = pairs.length
    tokens, probs, feature = [], [], predicted[None]
    for i in range(len(uniforms)):
        if tokens:
            mask = torch.ones(1, pairs.length + 1, dtype=torch.bool)
            feature = pairs.feed(feature, tokens[-1], torch.tensor([pairs.length]), mask)
        probs += [next_token_probs(head(feature), temperature)]
        tokens += [sample(probs[-1], uniforms[i : i + 1])]
    pairs.truncate(held)
    count = torch.tensor([len(tokens)])
    if len(uniforms) == 0:
        return Draft(torch.zeros(1, 0, dtype=torch.int64), count)
    return Draft(torch.cat(tokens)[None], count, torch.cat(probs)[None])


def draft_tree(
    pairs: DrafterPast,
    head: Callable[[Tensor], Tensor],
    predicted: Float[Tensor, "D"],
    root: int,
    choices: Sequence[Choice],
) -> Int[Tensor, "T"]:
    held, parents = pairs.length, tree_parents(choices)
    depths = tree_depths(parents)
    order = depths.argsort(stable=True).tolist()  # by depth
    place = {node: i - 1 for i, node in enumerate(order)}  # among what is drafted; of the root −1
    visible = tree_mask(parents, 0)[order][:, order][:, 1:]
    tokens = torch.full((len(parents),), root)
    features = predicted.repeat(len(parents), 1)
    for depth in range(int(depths.max())):
        if depth:  # all of the depths so far, again
            drafted = [node for node in order if 0 < depths[node] <= depth]
            pairs.truncate(held)
            count = len(drafted)
            mask = torch.ones(count, held + count, dtype=torch.bool)
            mask[:, held:] = visible[1 : count + 1, :count]
            own = [parents[node] for node in drafted]
            assert [place[node] for node in drafted] == list(range(count))
            new = pairs.feed(features[own], tokens[drafted], held + depths[drafted] - 1, mask)
            features[drafted] = new
        ranked = head(features).argsort(dim=-1, descending=True)
        for node in range(1, len(parents)):
            if depths[node] == depth + 1:
                tokens[node] = ranked[parents[node], choices[node - 1][-1]]
    pairs.truncate(held)
    return tokens


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
    uniforms = torch.zeros(shape) if uniforms is None else uniforms
    pairs, sequence, start = DrafterPast(drafter), list(prompt), len(prompt)
    features = _fed(past, torch.tensor(prompt), list(range(-1, start - 1)))
    probs = next_token_probs(past.logits(features[-1:]), temperature)
    sequence.append(int(sample(probs, uniforms[:1].flatten()[-1:])))
    r = 1
    while len(sequence) - start < max_new_tokens and not any(
        token in stop_tokens for token in sequence[start:]
    ):
        missing, held = start + max_new_tokens - len(sequence), past.length
        if missing > 1:
            count = len(features)
            mask = torch.ones(count, pairs.length + count, dtype=torch.bool).tril(pairs.length)
            positions = pairs.length + torch.arange(count)
            fresh = torch.tensor(sequence[-count:])
            predicted = pairs.feed(features, fresh, positions, mask)[-1]
        if missing == 1:  # nothing is drafted, and nothing needs to be read
            guess = Draft(torch.zeros(1, 0, dtype=torch.int64), torch.tensor([0]))
            tokens, parents = torch.tensor(sequence[-1:]), [-1]
        elif is_chain:
            drawing = uniforms[r, : min(draft, missing - 1)]
            guess = draft_chain(pairs, past.logits, predicted, drawing, temperature)
            tokens = torch.cat([torch.tensor(sequence[-1:]), guess.tokens[0]])
            parents = list(range(-1, len(tokens) - 1))
        else:
            usable = [choice for choice in draft if len(choice) < missing]
            tokens = draft_tree(pairs, past.logits, predicted, sequence[-1], usable)
            parents = tree_parents(usable)
        features = _fed(past, tokens, parents)
        probs = next_token_probs(past.logits(features), temperature)
        if is_chain:
            number = len(parents) - 1
            checks = torch.cat([uniforms[r, draft:][:number], uniforms[r, -1:]])
            gained = [t for t in verify(guess, probs[None], checks[None])[0].tolist() if t != -1]
            path = list(range(len(gained)))
        else:
            path, last = accept_path(tokens, parents, probs, uniforms[len(sequence) - start :])
            gained = [*tokens[path].tolist()[1:], last]
        past.keep([*range(held), *[held + node for node in path]])
        features = features[torch.tensor(path)]
        sequence.extend(gained)
        r += 1
    new = sequence[start:]
    for i, token in enumerate(new):
        if token in stop_tokens:
            return new[: i + 1]
    return new


def _fed(past: TreePast, tokens: Tensor, parents: list[int]) -> Tensor:
    held = past.length
    return past.feed(tokens, held + tree_depths(parents), tree_mask(parents, held))
