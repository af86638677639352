"""What the reference of linear attention promises beyond the tests that every submission passes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from assignment.provided.lab.kernel import Lab, lab
from solutions.kernels.chunked_linear_attention import chunked_linear_attention
from tests.grading.draw import Draw
from tests.kernels.linear_inputs import Linear, draw_linear
from tests.kernels.oracles_linear import recurrence

ALMOST_ONCE = 1.02  # of each argument's bytes


def attend(linear: Linear, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, Lab]:
    with lab(seed) as seen:
        out, state = chunked_linear_attention(*linear.arguments)
    seen.check()
    return out, state, seen


@pytest.mark.parametrize(
    "heads, lengths, key_dim, value_dim, options",
    [
        (3, [150, 30, 0, 1], 64, 64, {}),
        (2, [90], 128, 128, {"dtype": torch.bfloat16}),
        (2, [33, 47], 80, 48, {"dtype": torch.float32}),
        (4, [1] * 5, 64, 128, {}),
    ],
)
def test_the_state_is_moved_once_and_tokens_once_for_64_columns(
    heads, lengths, key_dim, value_dim, options
):
    options |= {"key_dim": key_dim, "value_dim": value_dim}
    linear = draw_linear(Draw(0), heads, lengths, **options)
    *_, seen = attend(linear)
    (launch,) = seen.launches
    tokens, width, tiles = sum(lengths) * heads, linear.q.element_size(), -(-value_dim // 64)
    keys, values = tiles * tokens * key_dim * width, tokens * value_dim * width
    state = 4 * linear.state.numel()
    loaded = {"q": keys, "k": keys, "v": values, "log_decay": tiles * tokens * 4, "state": state}
    for moved, expected in ((launch.loaded, loaded), (launch.stored, {"new_state": state})):
        for name, once in expected.items():
            assert once <= moved[name].requested <= ALMOST_ONCE * once
    assert launch.stored["out"].requested == values
    assert launch.loaded["starts"].requested == 8 * launch.programs
    assert seen.cost.flops == seen.cost.bytes == 0


def test_any_order_of_programs_gives_the_same_bits():
    linear = draw_linear(Draw(1), 3, [70, 0, 33], value_dim=130, closed=[3, 40])
    first, second, third = (attend(linear, seed)[:2] for seed in range(3))
    for one, *others in zip(first, second, third, strict=True):
        assert all(torch.equal(one, other) for other in others)


@pytest.mark.parametrize("borders", [[0, 1, 100], [0, 32, 64, 100], [0, 0, 47, 48, 99, 100, 100]])
@pytest.mark.parametrize("closed", [[], [0, 47, 48]])
def test_any_split_is_as_one_pass(borders, closed):
    """In float32, to rounding."""
    options = {"dtype": torch.float32, "key_dim": 24, "value_dim": 16, "closed": closed}
    whole = draw_linear(Draw(2), 3, [100], **options)
    out, expected, _ = attend(whole)
    state, outs = whole.state, []
    for first, end in pairwise(borders):
        part, state, _ = attend(whole.part([first], [end], state))
        outs.append(part)
    assert (torch.cat(outs) - out).abs().max() < 2e-6 * out.abs().max()
    assert (state - expected).abs().max() < 2e-6 * expected.abs().max()


@pytest.mark.parametrize("decay", [0.0, -1e-4, -0.3, -7.0, -40.0])
@pytest.mark.parametrize("closed", [[], [0, 5, 6, 31, 32, 90]])
def test_float32_is_the_recurrence(decay, closed):
    """Sums of what lies between two tokens keep their digits, differences of sums would not."""
    options = {"dtype": torch.float32, "decay": decay, "closed": closed}
    linear = draw_linear(Draw(3), 2, [130, 7], key_dim=48, **options)
    out, state, _ = attend(linear)
    for sequence in range(2):
        expected = recurrence(linear, sequence)
        for got, right in zip((out[linear.rows(sequence)], state[sequence]), expected, strict=True):
            assert (got.double() - right).abs().max() < 1e-6 * right.abs().max()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("length", [1, 100])
def test_its_machine_code(length, dim, architecture):
    """float16. Decays and starts are single numbers, and so are loads of them."""
    linear = draw_linear(Draw(4), 2, [length, 1], key_dim=dim, value_dim=dim)
    (compiled,) = attend(linear)[2].compiled(architecture)
    assert compiled.spilled == 0
    assert compiled.programs_at_once >= 1
    assert compiled.tensor_core > 0
    assert compiled.wide_loads >= 0.6 * compiled.loads


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_float32_does_not_spill_either(architecture):
    linear = draw_linear(Draw(5), 2, [100], key_dim=64, value_dim=64, dtype=torch.float32)
    (compiled,) = attend(linear)[2].compiled(architecture)
    assert compiled.spilled == 0
