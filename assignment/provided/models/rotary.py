"""Rotary position embedding: turning vectors by given angles, or by their positions."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def rotate(
    x: Float[Tensor, "B heads T H"], angles: Float[Tensor, "B T half"]
) -> Float[Tensor, "B heads T H"]:
    """Turn each pair (x[i], x[i + H/2]) of a head by its angle.

        y[i]       = x[i] · cos a[i]  −  x[i + H/2] · sin a[i]
        y[i + H/2] = x[i + H/2] · cos a[i]  +  x[i] · sin a[i]          i = 0 … H/2 − 1

    Args:
        x: queries or keys, [batch, heads, seq, head_dim].
        angles: radians per position and pair, the same for every head. Batch 1 stands for all rows.

    Returns:
        The rotated vectors in x's dtype. The arithmetic is done in the wider of the two dtypes, so
        float32 angles stay exact when x is bfloat16.

    Raises:
        ValueError: if the head dimension is odd or the shapes do not fit each other.

    Source: Su et al., RoFormer, https://arxiv.org/abs/2104.09864 (pairs split in halves, as Llama).
    """
    batch, _, seq, head_dim = x.shape
    if head_dim % 2:
        raise ValueError(f"x: rotation pairs up the head dimension, which must be even: {head_dim}")
    if angles.shape not in ((batch, seq, head_dim // 2), (1, seq, head_dim // 2)):
        raise ValueError(
            f"angles: expected [{batch}, {seq}, {head_dim // 2}] for x of shape {list(x.shape)}, "
            f"got {list(angles.shape)}"
        )
    return turn(x, angles.cos().unsqueeze(1), angles.sin().unsqueeze(1))


def turn(
    x: Float[Tensor, "B heads T H"],
    cos: Float[Tensor, "B 1 T half"],
    sin: Float[Tensor, "B 1 T half"],
) -> Float[Tensor, "B heads T H"]:
    """`rotate` by angles whose cosines and sines are known: once a pass, not in every layer."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype)


def rotate_at(
    x: Float[Tensor, "B heads T H"], positions: Int[Tensor, "B T"], theta: float = 10_000.0
) -> Float[Tensor, "B heads T H"]:
    """`rotate` by the angles position · theta^(−2i / H), taken in float32 whatever x's dtype:
    bfloat16 cannot tell position 256 from 257."""
    return rotate(x, angles_at(positions, x.shape[-1], theta))


def angles_at(
    positions: Int[Tensor, "B T"], head_dim: int, theta: float
) -> Float[Tensor, "B T half"]:
    pair = torch.arange(0, head_dim, 2, device=positions.device).float()
    return positions.float().unsqueeze(-1) * (1.0 / theta ** (pair / head_dim))


def cos_sin_at(
    positions: Int[Tensor, "B T"], head_dim: int, theta: float
) -> tuple[Float[Tensor, "B 1 T half"], Float[Tensor, "B 1 T half"]]:
    """What `turn` takes, and so a `Layer` of the Llama."""
    angles = angles_at(positions, head_dim, theta).unsqueeze(1)
    return angles.cos(), angles.sin()
