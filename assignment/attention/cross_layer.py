"""Cross-layer attention: some layers have no keys and values of their own and read another's.

Heads can share keys and values (grouped-query attention); so can layers. A layer that shares has no
k_proj and v_proj and keeps nothing: with groups of two the cache is half as large. What a decode
step reads does not shrink, for each layer still reads keys and values, its own or another's.

Brandon et al., "Reducing Transformer Key-Value Cache Size with Cross-Layer Attention", 2024,
arXiv:2405.12981. With windows: Character.AI, "Optimizing AI Inference at Character.AI", 2024: one
layer in six sees everything, the others 1024 tokens, and layers share with their own kind.

Axes: B batch, N query heads, K KV heads, T new tokens (queries), S slots, H head dim, D model
width.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, key_positions, rotate_at


def kv_owners(windows: Sequence[int | None], share: int) -> list[int]:
    """Whose keys and values each layer reads: its own index if it owns them, else an earlier one.

    Layers share with their own kind, those of an equal window (None: it sees everything). Taken in
    order, the layers of a kind form groups of `share`, wherever they stand; the last group may be
    smaller. The first layer of a group owns, the others read it.

    Windows 8 8 None 8 8 None with share = 2: owners 0 0 2 3 3 2. With share = 3: 0 0 2 0 4 2.

    Args:
        windows: for each layer, first to last.
        share: layers in a group; 1 means that every layer owns.

    Raises:
        ValueError: share is below 1.

    About 8 lines.
    """
    raise NotImplementedError


class SharedAttention(nn.Module):
    """An attention layer without k_proj and v_proj: it reads the cache of an earlier layer."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        window: int | None = None,
        rope_theta: float = 10_000.0,
    ) -> None:
        """num_kv_heads are those of the cache's owner, and so is the window (None: all tokens)."""
        super().__init__()
        self.head_dim, self.window, self.rope_theta = head_dim, window, rope_theta
        self.q_proj = nn.Linear(d_model, num_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: LayerCache,
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend from each of the T new tokens to the keys and values of the cache's owner.

        The owner came first: row b's real new tokens, num_tokens[b] of its T columns from the left
        (default: all), are the last num_tokens[b] of its cache.lengths[b]. Nothing is appended. The
        cached keys are rotated, each by its position; the queries are not yet. The given
        `key_positions(cache)` says where the token of each slot stands (−1: no token, any finite
        number).

        A token sees itself and those before it in its row; with a window only the last `window` of
        these, itself included. Scores may have any size. Query head n reads KV head n // (N / K).
        The output of columns behind the real tokens may be anything finite.

        Hint: `F.scaled_dot_product_attention` can do most of it, but for a query that sees nothing,
        as padding may, some of its versions give NaN. About 15 lines.
        """
        raise NotImplementedError
