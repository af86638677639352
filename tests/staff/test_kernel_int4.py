"""What the reference of 4-bit products promises beyond the tests that every submission passes."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.lab.kernel import Lab, lab
from solutions.compression.quantization import QuantizedLinear
from solutions.kernels.int4_matmul import int4_matmul
from tests.grading.closeness import assert_close
from tests.grading.draw import Draw
from tests.kernels.int4_inputs import OUTPUTS, ROWS, Int4, draw_int4
from tests.kernels.kernel_inputs import DTYPES

ALMOST_ONCE = 1.02  # of each argument's bytes


def multiply(int4: Int4, seed: int = 0) -> tuple[torch.Tensor, Lab]:
    with lab(seed) as seen:
        out = int4_matmul(*int4.arguments)
    seen.check()
    return out, seen


@pytest.mark.parametrize(
    "rows, inputs, outputs, group",
    [(1, 576, 17 * OUTPUTS, 128), (64, 200, 300, 32), (150, 130, 260, 64), (3, 255, 200, 24)],
)
def test_each_byte_once(rows, inputs, outputs, group):
    """Scales and zero points by each split, which looks up the eight groups that it is in."""
    int4 = draw_int4(Draw(0), rows, inputs, outputs, group=group)
    _, seen = multiply(int4)
    multiplying = seen.launches[0]
    of_rows, of_outputs = -(-rows // ROWS), -(-outputs // OUTPUTS)
    of_splits = of_rows * multiplying.grid[2]
    times = {"x": of_outputs, "packed": of_rows, "scales": of_splits, "zero_points": of_splits}
    assert multiplying.loaded.keys() == times.keys()
    for name, argument in zip(Int4.NAMES, int4.arguments, strict=False):
        once = argument.numel() * argument.element_size()
        moved = multiplying.loaded[name].requested
        assert once <= moved <= ALMOST_ONCE * times[name] * once, name
    assert seen.cost.bytes == seen.cost.flops == 0


def test_parts_are_written_and_read_once():
    rows, inputs, outputs = 5, 1024, 200
    _, seen = multiply(draw_int4(Draw(1), rows, inputs, outputs))
    multiplying, adding = seen.launches
    splits = multiplying.grid[2]
    assert splits > 1
    assert multiplying.bytes_stored == adding.bytes_loaded == splits * rows * outputs * 4
    assert adding.bytes_stored == rows * outputs * 2


@pytest.mark.parametrize("inputs", [200, 1100])
def test_any_order_of_programs_gives_the_same_bits(inputs):
    int4 = draw_int4(Draw(2), 70, inputs, 150, group=24)
    first, second, third = (multiply(int4, seed)[0] for seed in range(3))
    assert torch.equal(first, second) and torch.equal(first, third)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("group", [8, 40, 128, 576])
def test_it_is_the_layer_of_the_torch_unit(group, dtype):
    """Of a weight with a row of zeros and a positive one."""
    draw = Draw(3)
    weight = draw.normal(70, 333, scale=0.05)
    weight[3], weight[4] = 0, weight[4].abs() + 0.01
    layer = QuantizedLinear(weight, 4, group)
    x = draw.normal(9, 333, dtype=dtype)
    with lab() as seen:
        got = int4_matmul(x, layer.codes, layer.scale, layer.zero_point, group)
    seen.check()
    expected = x.double() @ layer.dequantized().double().T
    assert_close(got, expected, naive=layer(x), axes="row output")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("rows", [1, 32, 64])
def test_its_machine_code(rows, architecture):
    """float16, in groups of 128; widths of a real layer, but for its outputs."""
    _, seen = multiply(draw_int4(Draw(4), rows, 4096, 140))
    multiplying, adding = seen.compiled(architecture)
    assert multiplying.spilled == adding.spilled == 0
    assert multiplying.programs_at_once >= 2
    assert multiplying.tensor_core > 0
    assert multiplying.wide_loads >= 0.8 * multiplying.loads
