"""What the reference of prefill attention promises beyond what every submission has to."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from assignment.provided.lab.kernel import Lab, lab
from solutions.kernels.varlen_attention import varlen_attention
from solutions.serving.engine import gather_attention
from tests.grading.draw import Draw
from tests.kernels.varlen_inputs import Varlen, draw_varlen, kv_bytes, prompts

ROUNDED = 2e-3  # of float16 results, in which numbers are about 1


def attend(varlen: Varlen, seed: int = 0) -> tuple[torch.Tensor, Lab]:
    with lab(seed) as seen:
        out = varlen_attention(*varlen.arguments)
    seen.check()
    return out, seen


@pytest.mark.parametrize(
    "heads, kv_heads, requests, options",
    [
        (8, 2, prompts(200, 30, 1), {"head_dim": 128}),
        (28, 4, [(20, 100), (1, 257)], {"dtype": torch.bfloat16, "block_size": 32}),
        (9, 3, [(50, 70), (0, 9), (3, 1)], {"head_dim": 80, "block_size": 5}),
        (4, 4, [(100, 301), (1, 90)], {"head_dim": 64, "window": 70}),
        (8, 1, [(100, 301), (1, 90)], {"window": 70, "block_size": 16}),
    ],
)
def test_visible_tiles_and_nothing_else_are_loaded(heads, kv_heads, requests, options):
    """In programs of 64 rows, or of 16 or 32 where that is all there is."""
    varlen = draw_varlen(Draw(0), heads, kv_heads, requests, **options)
    _, seen = attend(varlen)
    (launch,) = seen.launches
    for name in ("k", "v"):
        assert 2 * launch.loaded[name].requested == kv_bytes(varlen)
    queries = varlen.q.numel() * varlen.q.element_size()
    assert launch.loaded["q"].requested == launch.stored["out"].requested == queries
    assert seen.cost.flops == seen.cost.bytes == 0


def test_a_tile_outside_the_mask_or_the_window_is_never_loaded():
    """By hand: 64 rows are 16 query tokens at 4 heads; 3 tiles, of a request of 40 in a window."""
    whole = draw_varlen(Draw(0), 4, 1, prompts(40))
    assert kv_bytes(whole) == 2 * (16 + 32 + 40) * 16 * 2
    windowed = draw_varlen(Draw(0), 4, 1, prompts(40), window=10)
    assert kv_bytes(windowed) == 2 * (16 + (16 + 9) + (8 + 9)) * 16 * 2


@pytest.mark.parametrize("options", [{}, {"block_size": 16}, {"window": 20}], ids=str)
def test_any_order_of_programs_gives_the_same_bits(options):
    varlen = draw_varlen(Draw(1), 6, 2, [(70, 100), (0, 4), (1, 67)], head_dim=64, **options)
    first, second, third = (attend(varlen, seed)[0] for seed in range(3))
    assert torch.equal(first, second) and torch.equal(first, third)


def test_is_what_the_engine_gathers():
    varlen = draw_varlen(Draw(2), 6, 2, [(20, 90), (1, 33), (7, 7)], head_dim=64, block_size=16)
    q, k, v, starts, lengths, *_, tables = varlen.arguments
    expected = gather_attention(q, k, v, tables, starts.diff(), lengths)
    torch.testing.assert_close(attend(varlen)[0], expected, atol=ROUNDED, rtol=ROUNDED)


@pytest.mark.parametrize("new, length, window", [(33, 33, None), (20, 90, None), (50, 80, 17)])
def test_is_what_torch_attends_to(new, length, window):
    varlen = draw_varlen(Draw(3), 6, 2, [(new, length)], head_dim=64, window=window)
    ahead = torch.arange(length - new, length)[:, None] - torch.arange(length)
    mask = (ahead >= 0) & (ahead < (window or length))
    q, k, v = (rows[0].transpose(0, 1) for rows in (varlen.queries, varlen.keys, varlen.values))
    expected = scaled_dot_product_attention(q, k, v, mask, enable_gqa=True).transpose(0, 1)
    torch.testing.assert_close(attend(varlen)[0], expected, atol=ROUNDED, rtol=ROUNDED)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("options", [{}, {"block_size": 16}, {"window": 60}], ids=str)
@pytest.mark.parametrize(
    "requests", [[(40, 90), (1, 40)], [(1, 90), (1, 40)]], ids=["mixed", "one"]
)
def test_its_machine_code(requests, options, architecture):
    """float16, 8 query heads on 2 KV heads of 128 channels, in tiles of 64 rows and of 16."""
    _, seen = attend(draw_varlen(Draw(4), 8, 2, requests, head_dim=128, **options))
    (code,) = seen.compiled(architecture)
    assert code.spilled == 0
    assert code.programs_at_once >= 2
    assert code.tensor_core > 0
    assert code.wide_loads >= 0.8 * code.loads


@pytest.mark.parametrize("head_dim, dtype", [(64, torch.float16), (128, torch.float32)])
@pytest.mark.parametrize("block_size", [None, 16])
def test_nothing_spills(head_dim, dtype, block_size):
    options = {"head_dim": head_dim, "dtype": dtype, "block_size": block_size}
    _, seen = attend(draw_varlen(Draw(5), 8, 2, [(40, 90), (1, 40)], **options))
    for architecture in ("sm_80", "sm_90"):
        (code,) = seen.compiled(architecture)
        assert code.spilled == 0
        assert code.programs_at_once >= 1
