"""What the reference of 8-bit products promises beyond the tests that every submission passes."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.lab.kernel import Lab, lab
from solutions.compression.llm_int8 import Int8Linear
from solutions.kernels import int8_matmul as module
from solutions.kernels.int8_matmul import int8_matmul
from tests.grading.draw import Draw
from tests.kernels.int8_inputs import Case, draw_case, least_bytes
from tests.kernels.kernel_inputs import DTYPES
from tests.kernels.oracles_int8 import expected

ALMOST_ONCE = 1.02  # of each argument's bytes


def multiply(case: Case, seed: int = 0) -> tuple[torch.Tensor, Lab]:
    with lab(seed) as seen:
        out = int8_matmul(*case.arguments)
    seen.check()
    return out, seen


@pytest.mark.parametrize(
    "rows, inputs, outputs, columns",
    [(12, 256, 8448, [19]), (100, 576, 4224, [3, 500]), (1, 300, 5120, []), (65, 257, 4300, [256])],
)
def test_each_argument_is_read_as_often_as_it_says(rows, inputs, outputs, columns):
    """One row tile of 64 and one output tile of 128; fewer outputs where there are few rows."""
    case = draw_case(Draw(0), rows, inputs, outputs, columns=columns)
    _, seen = multiply(case)
    flagging, quantising, multiplying = seen.launches
    width, row_tiles = inputs * case.x.element_size(), -(-rows // 64)
    output_tiles = multiplying.grid[1]
    assert output_tiles == -(-outputs // (64 if rows == 1 else 128))

    def requested(traffic, least):
        assert least <= traffic.requested <= ALMOST_ONCE * least

    requested(flagging.loaded["x"], rows * width)
    requested(flagging.stored["flags"], -(-inputs // 8))
    requested(quantising.loaded["x"], rows * width)
    requested(quantising.stored["codes"], rows * inputs)
    requested(multiplying.loaded["codes"], inputs * outputs * row_tiles)
    requested(multiplying.loaded["scales"], 4 * outputs * row_tiles)
    requested(multiplying.loaded["x_codes"], rows * inputs * output_tiles)
    requested(multiplying.loaded["x_scales"], 4 * rows * output_tiles)
    requested(multiplying.stored["out"], rows * outputs * case.x.element_size())
    # Of x at most 16 bytes for each outlier column.
    again = multiplying.loaded["x"].requested if columns else 0
    assert ("x" in multiplying.loaded) is bool(columns)
    assert again <= len(columns) * rows * 16 * output_tiles
    assert seen.cost.flops == seen.cost.bytes == 0
    moved = sum(launch.bytes_loaded + launch.bytes_stored for launch in seen.launches)
    assert moved <= 1.03 * least_bytes(case)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_order_of_programs_gives_the_same_bits(dtype):
    case = draw_case(Draw(1), 70, 200, 90, columns=[3, 150], dtype=dtype)
    first, second, third = (multiply(case, seed)[0] for seed in range(3))
    assert torch.equal(first, second) and torch.equal(first, third)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [[], [7], list(range(40))], ids=["none", "one", "all"])
def test_it_is_the_torch_unit_s_layer(dtype, columns):
    """Twice what either may be off: each is as close to the definition as it has to be."""
    draw = Draw(2)
    x = draw_case(draw, 6, 40, 1, columns=columns, dtype=dtype).x
    layer = Int8Linear(draw.normal(25, 40) * 0.02)
    case = Case(x, layer.codes, layer.scale.flatten())
    got, _ = multiply(case)
    assert ((got.double() - layer(x).double()).abs() <= 2 * expected(case).allowed).all()


@pytest.fixture
def full_tiles(monkeypatch):
    """128 outputs a program, as where there are many, with few of them to compute."""
    monkeypatch.setattr(module, "_outputs_of_a_program", lambda outputs, row_tiles: 128)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("rows, wide", [(16, 0.8), (70, 0.6)])
def test_its_machine_code(full_tiles, rows, wide, architecture):
    """float16. With 64 rows, too, all that lies in rows is loaded 16 bytes a thread; the rest are
    flags, and scales, of which a thread wants two at a time."""
    _, seen = multiply(draw_case(Draw(3), rows, 1024, 256, columns=[9]))
    compiled = seen.compiled(architecture)
    assert all(code.spilled == 0 and code.programs_at_once >= 1 for code in compiled)
    multiplying = compiled[-1]
    assert multiplying.tensor_core > 0
    assert multiplying.wide_loads >= wide * multiplying.loads
    assert seen.launches[-1].dot_flops["int8"] >= 2 * rows * 1024 * 256


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "rows, dtype",
    [(30, torch.bfloat16), (5, torch.float32), (30, torch.float32), (70, torch.float32)],
    ids=str,
)
def test_nothing_spills(full_tiles, rows, dtype, architecture):
    _, seen = multiply(draw_case(Draw(4), rows, 576, 256, columns=[9], dtype=dtype))
    assert all(code.spilled == 0 for code in seen.compiled(architecture))
