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
    # BEGIN SOLUTION
    if share < 1:
        raise ValueError(f"share: expected at least 1 layer in a group, got {share}")
    of_a_kind: dict[int | None, list[int]] = {}
    owners = []
    for index, window in enumerate(windows):
        layers = of_a_kind.setdefault(window, [])
        layers.append(index)
        first_of_group = (len(layers) - 1) // share * share
        owners.append(layers[first_of_group])
    return owners
    # END SOLUTION


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
        # BEGIN SOLUTION
        batch, num_new = x.shape[:2]
        if num_tokens is None:
            num_tokens = torch.full((batch,), num_new)
        queries_at = (cache.lengths - num_tokens)[:, None] + torch.arange(num_new)
        q = rearrange(self.q_proj(x), "b t (heads h) -> b heads t h", h=self.head_dim)
        q = rotate_at(q, queries_at, self.rope_theta)

        query, key = queries_at[:, :, None], key_positions(cache)[:, None, :]
        visible = (key >= 0) & (key <= query)
        if self.window is not None:
            visible &= query - key < self.window
        visible = rearrange(visible, "b t s -> b 1 t s")
        k, v = cache.keys_values()
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)
        out = out.masked_fill(~visible.any(dim=-1, keepdim=True), 0)  # padding may see nothing
        return self.o_proj(rearrange(out, "b heads t h -> b t (heads h)"))
        # END SOLUTION
