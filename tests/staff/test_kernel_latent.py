"""What the reference of latent decoding promises beyond the tests that every submission passes."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.lab.kernel import Lab, lab
from solutions.attention.latent import absorbed_attention, materialised_attention
from solutions.kernels.latent_decode import latent_decode
from tests.grading.draw import Draw
from tests.kernels.latent_kernel_inputs import Latent, draw_latent

ALMOST_ONCE = 1.02  # of what each argument has to move
FULL_SIZE = {"latent_dim": 512, "rope_dim": 64}


def attend(latent: Latent, seed: int = 0) -> tuple[torch.Tensor, Lab]:
    with lab(seed) as seen:
        out = latent_decode(*latent.arguments)
    seen.check()
    return out, seen


@pytest.mark.parametrize(
    "heads, tiles, lengths, options",
    [
        (16, 1, [700, 30, 1], {"num_splits": 3, **FULL_SIZE}),
        (128, 4, [97], {"latent_dim": 96, "rope_dim": 24, "dtype": torch.bfloat16}),
        (33, 2, [100, 61], {"block_size": 5, "num_splits": 4, "dtype": torch.float32}),
        (6, 1, [201, 90], {"latent_dim": 80, "rope_dim": 8, "num_splits": 1}),
    ],
)
def test_what_each_argument_moves(heads, tiles, lengths, options):
    latent = draw_latent(Draw(0), heads, lengths, **options)
    out, seen = attend(latent)
    splitting, *combining = seen.launches
    splits = splitting.grid[2]
    queries = {name: splits * x.numel() * x.element_size() for name, x in named_queries(latent)}
    rows = tiles * sum(lengths) * latent.width * out.element_size()
    for name, least in {**queries, "cache": rows}.items():
        assert least <= splitting.loaded[name].requested <= ALMOST_ONCE * least, name
        assert all(name not in launch.loaded for launch in combining)
    if splits > 1:
        parts, sums = (splits * len(lengths) * heads * width * 4 for width in (out.shape[2], 1))
        assert splitting.stored["out"].requested == parts
        assert splitting.stored["log_sums"].requested == sums
        assert combining[0].loaded["parts"].requested == parts
        assert combining[0].loaded["log_sums"].requested == combining[0].grid[2] * sums
    assert seen.launches[-1].stored["out"].requested == out.numel() * out.element_size()
    assert seen.cost.flops == 0


def named_queries(latent: Latent) -> list[tuple[str, torch.Tensor]]:
    return [("q_latent", latent.q_latent), ("q_rope", latent.q_rope)]


@pytest.mark.parametrize("splits", [1, 5])
def test_any_order_of_programs_gives_the_same_bits(splits):
    latent = draw_latent(Draw(1), 40, [170, 0, 67], num_splits=splits)
    first, second, third = (attend(latent, seed)[0] for seed in range(3))
    assert torch.equal(first, second) and torch.equal(first, third)


@pytest.mark.parametrize(
    "heads, splits, at_once, dtype",
    [(16, 2, 2, torch.float16), (128, 1, 1, torch.float16), (128, 1, 1, torch.float32)],
)
def test_its_machine_code(heads, splits, at_once, dtype):
    """Of the widths of DeepSeek-V2 and V3."""
    options = {"num_splits": splits, "dtype": dtype, **FULL_SIZE}
    _, seen = attend(draw_latent(Draw(2), heads, [40], **options))
    for architecture in ("sm_80", "sm_90"):
        code = seen.compiled(architecture)
        assert all(launch.spilled == 0 for launch in code)
        assert code[0].programs_at_once >= at_once
        assert (code[0].tensor_core > 0) == (dtype == torch.float16)
        assert code[0].wide_loads >= 0.8 * code[0].loads


@pytest.mark.parametrize("attention", [absorbed_attention, materialised_attention])
def test_it_is_the_torch_units_function(attention):
    """With the up-projections before and after; of a head, 24 channels are without positions."""
    draw, heads, latent_dim = Draw(4), 6, 48
    scale = (24 + 16) ** -0.5
    options = {"dtype": torch.float32, "scale": scale, "num_splits": 3}
    latent = draw_latent(draw, heads, [90], latent_dim=latent_dim, **options)
    q_nope, k_up = draw.normal(1, heads, 24), draw.normal(heads, 24, latent_dim) / 7
    v_up = draw.normal(heads, 20, latent_dim) / 7
    latent.arguments[0] = torch.einsum("bnp,npc->bnc", q_nope, k_up).contiguous()
    got = torch.einsum("bnc,nec->bne", attend(latent)[0], v_up)
    queries = (q_nope[:, :, None], latent.q_rope[:, :, None])
    expected = attention(*queries, latent.latents[0][None], latent.keys[0][None], k_up, v_up)
    torch.testing.assert_close(got, expected[:, :, 0], rtol=1e-5, atol=1e-5)
