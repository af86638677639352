"""What a kernel's author is told: which element of which argument, and what to do about it."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.lab.kernel import KernelFault, lab
from assignment.provided.lab.kernel.places import index_of
from tests.staff import lab_kernels as kernels


class TestPlaces:
    @pytest.mark.parametrize("shape, dims", [((3, 4, 5), (0, 1, 2)), ((3, 4, 5), (2, 0, 1))])
    def test_every_element_has_its_index(self, shape, dims):
        tensor = torch.arange(60).view(shape).permute(dims)
        for index in torch.cartesian_prod(*map(torch.arange, tensor.shape)).tolist():
            offset = int(tensor[tuple(index)])
            assert index_of(offset, tensor.shape, tensor.stride()) == tuple(index)

    def test_of_a_slice_its_neighbours_have_none(self):
        fused = torch.arange(60).view(3, 20)
        part = fused[:, 5:12]
        for place in range(60):
            found = index_of(place - 5, part.shape, part.stride())
            inside = (part == place).nonzero().tolist()
            if inside:
                assert [list(found)] == inside
            elif place < 40:
                assert found is None or not 0 <= found[0] < 3

    @pytest.mark.parametrize(
        "shape, offset, expected",
        [
            ((3, 8), 24, (3, 0)),
            ((3, 8), -1, (-1, 7)),
            ((3, 8), 100, (12, 4)),
            ((4,), 4, (4,)),
            ((1,), 3, (3,)),
            ((1, 1, 8), 9, (0, 0, 9)),
            ((5, 1, 8), 9, (1, 0, 1)),
        ],
    )
    def test_outside_it_goes_on_along_the_first_axis(self, shape, offset, expected):
        assert index_of(offset, shape, torch.empty(shape).stride()) == expected

    def test_a_scalar_has_no_axes(self):
        assert index_of(0, (), ()) == () and index_of(1, (), ()) is None


class TestMessages:
    def told(self, *launches) -> list[str]:
        with lab() as seen:
            for kernel, grid, args, constants in launches:
                kernel[grid](*args, **constants)
        with pytest.raises(KernelFault) as caught:
            seen.check()
        return str(caught.value).splitlines()

    def test_one_line_for_all_programs_and_what_to_do(self):
        x, out = torch.zeros(4, 16), torch.zeros(3, 16)
        first, advice = self.told((kernels.copy, (32,), (x, out, 64), {"TILE": 2}))
        assert first.startswith("copy: store out of bounds: program (") and "'out'" in first
        assert first.endswith("of shape [3, 16], and 7 more such")
        assert "tl.store needs a mask" in advice

    def test_the_index_of_the_first_element(self):
        x = torch.zeros(2, 8)
        line, *_ = self.told((kernels.copy, (1,), (x, torch.zeros(19), 19), {"TILE": 32}))
        assert line.endswith(
            "argument 'x', byte 64, 3 elements, the first at x[2, 0] of shape [2, 8]"
        )

    def test_advice_once_for_each_kind(self):
        copied = (kernels.copy, (1,), (torch.zeros(4), torch.zeros(3), 5), {"TILE": 8})
        race = (kernels.all_write_the_first, (2,), (torch.zeros(1).int(),), {})
        lines = self.told(copied, copied, race)
        assert [line.split(":")[0] for line in lines[::2]] == [
            "copy",
            "copy",
            "all_write_the_first",
        ]
        assert "tl.load needs a mask" in lines[1] and "at once and in any order" in lines[5]

    def test_not_all_of_many(self):
        shapes = [(kernels.copy, (1,), (torch.zeros(4), torch.zeros(4), 5), {"TILE": 8})]
        named = [
            (kernels.matmul, (1, 1), (*[torch.zeros(4, 4) for _ in "abc"], 5, 5, 5),
             {"TM": 16, "TN": 16, "TK": 16}),
            (kernels.shifted, (1,), (torch.zeros(4), torch.zeros(4), 1), {"LENGTH": 8}),
        ]  # fmt: skip
        lines = self.told(*shapes, *named)
        assert lines[-1] == "… and 2 other arguments"


def test_sectors_are_those_of_a_gpu():
    """Whose storages begin at multiples of 256 bytes, wherever this machine puts them."""
    memory = bytearray(1024 + 64)
    for start in range(0, 64, 4):
        x = torch.frombuffer(memory, dtype=torch.float32, offset=start, count=256)
        with lab() as seen:
            kernels.copy[(1,)](x, torch.empty(256), 256, TILE=256)
        assert seen.launches[0].loaded["x"].sectors == 32
