"""What the reference of paged attention promises beyond the tests that every submission passes."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.lab.kernel import Lab, lab
from solutions.kernels.paged_attention import paged_attention
from tests.grading.draw import Draw
from tests.kernels.paged_inputs import Paged, draw_paged

ALMOST_ONCE = 1.02  # of each argument's visible bytes


def attend(paged: Paged, seed: int = 0) -> tuple[torch.Tensor, Lab]:
    with lab(seed) as seen:
        out = paged_attention(*paged.arguments)
    seen.check()
    return out, seen


@pytest.mark.parametrize(
    "heads, kv_heads, lengths, options",
    [
        (8, 2, [700, 30, 1], {"head_dim": 128}),
        (28, 4, [257], {"head_dim": 64, "block_size": 32, "dtype": torch.bfloat16}),
        (9, 3, [100, 321], {"head_dim": 80, "block_size": 5, "num_splits": 7}),
        (4, 4, [401, 90], {"head_dim": 64, "window": 70}),
    ],
)
def test_keys_and_values_are_read_once(heads, kv_heads, lengths, options):
    paged = draw_paged(Draw(0), heads, kv_heads, lengths, **options)
    _, seen = attend(paged)
    visible = sum(paged.visible) * kv_heads * paged.q.shape[2] * paged.q.element_size()
    attending, *combining = seen.launches
    for cache in ("k_cache", "v_cache"):
        assert visible <= attending.loaded[cache].requested <= ALMOST_ONCE * visible
        assert all(cache not in launch.loaded for launch in combining)
    assert seen.cost.flops == 0


@pytest.mark.parametrize("splits", [1, 5])
def test_any_order_of_programs_gives_the_same_bits(splits):
    paged = draw_paged(Draw(1), 6, 2, [170, 0, 67], head_dim=64, num_splits=splits)
    first, second, third = (attend(paged, seed)[0] for seed in range(3))
    assert torch.equal(first, second) and torch.equal(first, third)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("heads, head_dim", [(8, 64), (32, 128)])
def test_its_machine_code(heads, head_dim, architecture):
    """float16, 2 KV heads: groups that fill the 16 rows of a product, and that are padded."""
    _, seen = attend(draw_paged(Draw(2), heads, 2, [90, 40], head_dim=head_dim, num_splits=2))
    attending, combining = seen.compiled(architecture)
    assert attending.spilled == combining.spilled == 0
    assert attending.programs_at_once >= 2
    assert attending.tensor_core > 0
    assert attending.wide_loads >= 0.8 * attending.loads
