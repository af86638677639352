"""EAGLE: a drafter of one layer that goes on from the target's own features.

The target's last hidden state, its feature, says more of what comes than a token does. A small
layer guesses the next one, and the target's own norm and head make a token of it. One thing no
feature tells: which token was drawn from it. So the drafter reads pairs,

    (feature of token i, embedding of token i + 1)  ->  feature of token i + 1,

and the head on that says what token i + 2 is. While it drafts it reads features that it predicted;
when the target has given the true ones, it reads those in their place, as in its training.

Li et al., 2024, arXiv:2401.15077. A feature is what `Llama.hidden` returns: the last block's
result, before the final norm.

Axes: B sequences, T tokens, P pairs, S slots, G drafted tokens (γ), D model width, V vocabulary.
"""

from collections.abc import Callable, Collection, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LlamaConfig
from assignment.provided.models.blocks import Layer, Linear
from assignment.provided.models.llama import attend_causally
from assignment.provided.models.rotary import cos_sin_at
from assignment.provided.speculative import NO_TOKEN, Draft, TreePast

from ..attention.generate import next_token_probs, sample
from .medusa import Choice, accept_path, tree_depths, tree_mask, tree_parents
from .verification import verify


class EagleDrafter(nn.Module):
    """One Llama layer on pairs, of its target's sizes, with its target's embedding."""

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
        """The predicted features of next_tokens: layer(join([feature, embedding of next token])).

        Args:
            positions: of the pairs, default 0 … P − 1: the pair of tokens i and i + 1 stands at i.
            attend: as `layer` calls it. Default: a pair sees itself and those before it.

        `self._cos_sin(positions)` is what the layer rotates by. 2 lines.
        """
        positions = torch.arange(features.shape[1])[None] if positions is None else positions
        attend = attend or (lambda q, k, v: attend_causally(0, q, k, v))
        raise NotImplementedError

    def _cos_sin(self, positions: Int[Tensor, "B P"]) -> tuple[Tensor, Tensor]:
        """What `layer` rotates by."""
        return cos_sin_at(positions, self.config.head_dim, self.config.rope_theta)


class DrafterPast:
    """The drafter's keys and values of one sequence, a slot for each pair it was fed. Given."""

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
        """Pairs into the next P slots, and what comes of them; mask[p, s]: pair p sees slot s."""

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self._keys_values
            self._keys_values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
            return F.scaled_dot_product_attention(q, *self._keys_values, mask, enable_gqa=True)

        return self.drafter(features[None], next_tokens[None], positions[None], attend)[0]

    def truncate(self, length: int) -> None:
        """Keep the first `length` slots."""
        keys, values = self._keys_values
        self._keys_values = keys[:, :, :length], values[:, :, :length]


def eagle_loss(
    predicted: Float[Tensor, "B P D"],
    predicted_logits: Float[Tensor, "B P V"],
    features: Float[Tensor, "B T D"],
    logits: Float[Tensor, "B T V"],
    is_real: Bool[Tensor, "B T"],
) -> Float[Tensor, ""]:
    """What the drafter is trained on: smooth L1 of features + 0.1 · cross-entropy; P = T − 1.

    predicted[:, i] comes of the pair (feature of token i, token i + 1). With d the difference of an
    entry to what it is to be, and with p and q the head's distributions on the predicted and on the
    true feature (on all of q, not on the token that came),

        smooth L1: d² / 2 where |d| < 1, else |d| − 1/2      cross-entropy: −Σ_v q(v) log p(v)

    The first is a mean over entries, too; both are means over the batch's pairs whose token i + 1
    is real; there is one at least. (The paper's weights, section 3.2.)

    Args:
        predicted_logits, logits: the target's head on `predicted` and on `features`.
        is_real: False where a sequence is padded, on the right. What stands there is finite.
    """
    raise NotImplementedError


def draft_chain(
    pairs: DrafterPast,
    head: Callable[[Tensor], Tensor],
    predicted: Float[Tensor, "D"],
    uniforms: Float[Tensor, "G"],
    temperature: float = 0.0,
) -> Draft:
    """G ≥ 0 tokens, each drawn from the drafter's distribution after those before it.

    Token i is sample(probs, uniforms[i]), where probs are `next_token_probs` of the head on a
    predicted feature: at first the one given, then what the drafter makes of the pair (that
    feature, the token drawn from it), and so on. Such a pair stands behind, and sees, all that is
    held and the drafted ones before it. The last token needs no pair.

    Args:
        pairs: of the sequence up to its newest token, at positions 0 … length − 1. It holds the
            same afterwards: what was made of predicted features is thrown away.
        head: features [T, D] -> logits [T, V], the target's norm and head.
        predicted: the feature of the newest token, as the last of these pairs predicts it.

    Returns a `Draft` of one row, with the very distributions drawn from. About 12 lines.
    """
    raise NotImplementedError


def draft_tree(
    pairs: DrafterPast,
    head: Callable[[Tensor], Tensor],
    predicted: Float[Tensor, "D"],
    root: int,
    choices: Sequence[Choice],
) -> Int[Tensor, "T"]:
    """The tokens of the tree `tree_parents(choices)`: the root's, then that of each choice.

    Choice (r₀, …, r_d) holds the token of rank r_d after its parent: rank 0 has the largest logit
    in the head on the parent's predicted feature; equal ones may stand in any order. The root's is
    given. Another node's is what the drafter makes of the pair (predicted feature of its parent,
    its token), which sees all that is held, the drafted pairs of the node's ancestors, and itself;
    its position is one behind its parent's. The pair of the root is the last one held. Nodes of
    one depth are fed together.

    Args:
        pairs, head, predicted: as in `draft_chain`; `pairs` holds the same afterwards, too.
        root, choices: the newest token, and ranks below V.

    About 20 lines. Hint: `tree_mask(parents, 0)` says who descends from whom.
    """
    raise NotImplementedError


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
    """Continue a prompt by drafts that one call of the target checks, losing nothing.

    The target is fed as in `medusa_generate`, whose other arguments these are: the prompt, then
    round by round the newest token and what is drafted behind it, of which the accepted path is
    kept. Before it drafts, the drafter reads in one call the pairs that have become complete, with
    the target's features of the accepted nodes. So a draft is what a new drafter would make from
    the target's features of the whole sequence, whatever was drafted before. When n tokens are
    missing, a chain has at most n − 1 tokens, and a tree its choices of at most n − 1 ranks.

    Args:
        draft: choices for `draft_tree`, accepted by `accept_path`: the very tokens of `generate`.
            Or num_draft ≥ 0, for `draft_chain` at the same temperature as the target, accepted by
            `verify`: the law of `generate`, and at temperature 0 its tokens.
        uniforms: of a tree [max_new_tokens]; new token i uses uniforms[i]. Of a chain
            [max_new_tokens, 2·num_draft + 1]: the first token is `sample`'s with uniforms[0, −1].
            Then comes round 1. Round r draws its G ≤ num_draft tokens with the first G of
            uniforms[r], accepts them with the G from index num_draft on, also where G is smaller,
            and ends with the last.

    About 40 lines.
    """
    is_chain = isinstance(draft, int)
    shape = (max_new_tokens, 2 * draft + 1) if is_chain else (max_new_tokens,)
    if not prompt or min(shape) < 0:
        raise ValueError(f"expected a prompt and sizes ≥ 0, got {prompt}, uniforms {list(shape)}")
    if (uniforms is None and temperature > 0) or (uniforms is not None and uniforms.shape != shape):
        raise ValueError(f"expected uniforms of shape {list(shape)}, and some at a temperature > 0")
    raise NotImplementedError
