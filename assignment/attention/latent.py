"""Multi-head latent attention: the keys and values of all heads from one short vector a token.

A token's latent, C numbers, is cached in place of its keys and values. Head n could rebuild its own
from it: k = k_up c and v = v_up c. But for a query q and weights w

    q · (k_up c) = (k_upᵀ q) · c      and      Σ w (v_up c) = v_up (Σ w c):

the up-projections move to the query and to the result. They are absorbed, nothing is rebuilt, and
the latents themselves serve all heads as keys and as values. A rotation by position between k_up
and c would forbid that. So positions have R dimensions of their own: a rotary query in each head,
and one rotary key a token, which the heads share and the cache keeps beside the latent.

DeepSeek-AI, "DeepSeek-V2", 2024, arXiv:2405.04434, §2.1. Left out here: DeepSeek compresses the
queries too, which saves memory in training, and puts an RMSNorm behind each down-projection.

Axes: B batch, N heads, T new tokens (queries), S tokens to attend to, D model width, C latent dim,
P dims of a head without positions ("nope"), R rotary dims, E dims of a head's values.
"""

import math
from collections.abc import Callable

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.models import rotate_at


def materialised_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    """Causal attention to keys and values that are rebuilt from the latents: the definition.

        k[n, j] = k_up[n] latent[j]            v[n, j] = v_up[n] latent[j]
        score[n, t, j] = (q_nope[n, t] · k[n, j]  +  q_rope[n, t] · k_rope[j]) / √(P + R)

    Args:
        q_nope, q_rope: the two parts of each query, the rotary one already rotated.
        latent, k_rope: of the tokens to attend to, the rotary keys already rotated.
        k_up, v_up: the up-projections of each head.
        query_positions: key j of a row stands at position j, and query t of row b sees the keys
            j ≤ query_positions[b, t]. Default: the queries are the last tokens, at S − T + t.

    Returns:
        In the dtype of q_nope, which is that of all arguments; none of them is changed. A query
        that sees no key gets zeros. Gradients reach all arguments but the positions.

    In float32 at least, for scores of any size. About 20 lines, half of which both forms can use.
    """
    raise NotImplementedError


def absorbed_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    """The same function of the same arguments, and no key or value of a head is ever built.

    A decode step then goes through the latents once for the scores and once for the sums, for all
    heads together: FLOPs and bytes are counted. Gluing latent and k_rope together copies both. A
    broadcast `@` copies what it broadcasts: the latents for each head, or a weight for each row.

    Hint: `einsum` copies neither, and sums over whichever axis you leave out. About 10 lines.
    """
    raise NotImplementedError


class LatentCache:
    """Latents and rotary keys of one layer, for a batch of sequences of unequal length.

    The rules are those of `KVCache`: the tokens of row b are its slots 0 … lengths[b] − 1, out of
    `capacity`; all memory is allocated once. About 30 lines in all.
    """

    def __init__(
        self,
        batch_size: int,
        capacity: int,
        latent_dim: int,
        rope_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """An empty cache with room for `capacity` tokens a row, allocated now, as zeros."""
        self.capacity = capacity
        raise NotImplementedError

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        """Tokens held by each row, int64: a copy, which the caller may change."""
        raise NotImplementedError

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        """The positions of the next `num_new` tokens of each row, lengths[b] + t, int64."""
        raise NotImplementedError

    def append(
        self,
        latent: Float[Tensor, "B T C"],
        k_rope: Float[Tensor, "B T R"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        """Put new tokens behind what each row holds; only their bytes move.

        Args:
            latent, k_rope: of T columns a row, in the dtype of the cache; they are not changed.
            num_tokens: how many of row b's columns, from the left, are tokens (0 … T); the rest is
                padding, which may hold anything, even NaN, and is never stored. Default: all T.

        Raises:
            ValueError: a row has no room for its tokens, or a num_tokens[b] is not in 0 … T.
                Nothing has changed then, in any row.
        """
        raise NotImplementedError

    def latents(self) -> tuple[Float[Tensor, "B S C"], Float[Tensor, "B S R"]]:
        """All latents and all rotary keys, S = the length of the longest row. Views, not copies.

        A shorter row is padded on the right. Padding slots never written hold zeros; those that
        held a token once (see `truncate`) hold any finite numbers.
        """
        raise NotImplementedError

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Keep the first lengths[b] tokens of each row. Only the lengths change; nothing is moved.

        Raises:
            ValueError: a row holds fewer tokens than it should keep, or a length is negative.
                Nothing has changed then, in any row.
        """
        raise NotImplementedError


class LatentAttention(nn.Module):
    """An attention layer that caches C + R numbers a token, however many heads it has.

    Weights: q_proj [N·(P + R), D], each head's rows for q_nope and then those for q_rope;
    kv_down [C, D]; k_rope_proj [R, D], one rotary key for all heads; k_up [N·P, C]; v_up [N·E, C];
    o_proj [D, N·E].
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        latent_dim: int,
        nope_dim: int,
        rope_dim: int,
        v_dim: int,
        rope_theta: float = 10_000.0,
    ) -> None:
        super().__init__()
        self.num_heads, self.rope_theta = num_heads, rope_theta
        self.nope_dim, self.rope_dim, self.v_dim = nope_dim, rope_dim, v_dim
        self.q_proj = nn.Linear(d_model, num_heads * (nope_dim + rope_dim), bias=False)
        self.kv_down = nn.Linear(d_model, latent_dim, bias=False)
        self.k_rope_proj = nn.Linear(d_model, rope_dim, bias=False)
        self.k_up = nn.Linear(latent_dim, num_heads * nope_dim, bias=False)
        self.v_up = nn.Linear(latent_dim, num_heads * v_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * v_dim, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: LatentCache | None = None,
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend from each of the T new tokens to itself and all tokens before it.

        With a cache, the T tokens of row b come behind the cache.lengths[b] tokens it holds, at
        `cache.positions(T)`; their latents and rotated rotary keys are appended, and the queries
        see all that is held. Without one, x is the whole sequence, from position 0, and the layer
        can be trained through. Only the first num_tokens[b] tokens of row b are real (default:
        all); the output of the others may be anything finite.

        Uses the form with fewer FLOPs, as counted for a step on a long cache and a whole sequence.
        One pass, chunks or single tokens give the same. Hint: `rotate_at` wants an axis of heads;
        for the key, one will do. About 30 lines.
        """
        raise NotImplementedError
