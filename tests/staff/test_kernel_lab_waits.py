"""The lab sees a launcher that asks a tensor, as it sees bytes: in one process and in two."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F

from assignment.provided.lab import CostCounter, counting_suspended
from assignment.provided.lab.kernel import lab
from tests.grading.errors import SubmissionError
from tests.grading.kernels.boundary import in_lab
from tests.grading.transport import proxy
from tests.grading.transport.forkserver import ForkServer
from tests.grading.transport.proxy import Name
from tests.kernels.kernel_costs import assert_asks_nothing
from tests.staff.lab_kernels import copy

x, n, lengths = torch.randn(4, 5), torch.tensor(3), torch.tensor([2, 0, 1, 2])
mask = lengths > 0

ASKING = {
    "item": (lambda: n.item(), ["item"]),
    "int": (lambda: int(lengths.max()), ["__int__"]),
    "float": (lambda: float(x[0, 0]), ["__float__"]),
    "if": (lambda: 1 if mask.any() else 0, ["__bool__"]),
    "the largest by Python": (lambda: max(lengths), 3 * ["__bool__"]),
    "in": (lambda: 3 in lengths, ["__contains__"]),
    "range": (lambda: range(n), ["__index__"]),
    "a bound of a slice": (lambda: x[:n], ["__getitem__"]),
    "an index of one number": (lambda: x[n], ["__getitem__"]),
    "a shape": (lambda: torch.empty(n, 2), ["empty"]),
    "tolist": (lambda: lengths.tolist(), ["tolist"]),
    "cpu": (lambda: x.cpu(), ["cpu"]),
    "to": (lambda: x.to("cpu"), ["to"]),
    "to, by name": (lambda: x.to(device="cpu"), ["to"]),
    "a mask as an index": (lambda: x[mask], ["__getitem__"]),
    "a list of them": (lambda: x[[True, False, True, True]], ["__getitem__"]),
    "rows put where a mask is": (lambda: x.clone().__setitem__(mask, x[:3]), ["__setitem__"]),
    "masked_select": (lambda: x.masked_select(x > 0), ["masked_select"]),
    "nonzero": (lambda: mask.nonzero(), ["nonzero"]),
    "where, of one argument": (lambda: torch.where(mask), ["where"]),
    "repeat_interleave": (lambda: x.repeat_interleave(lengths, 0), ["repeat_interleave"]),
    "unique": (lambda: torch.unique(lengths), ["unique"]),
    "bincount": (lambda: torch.bincount(lengths), ["bincount"]),
    "one_hot": (lambda: F.one_hot(lengths), 2 * ["one_hot"]),
    "equal": (lambda: torch.equal(x, x), ["equal"]),
    "allclose": (lambda: torch.allclose(x, x), ["allclose"]),
    "print": (lambda: str(lengths), ["__repr__"]),
    "print of a number": (lambda: f"{n}", ["__format__"]),
}

NOT_ASKING = {
    "what it is": lambda: (x.shape, x.stride(), len(x), x.numel(), x.dim(), x.dtype, x.device),
    "how it lies": lambda: (x.is_contiguous(), x.storage_offset(), x.element_size(), x.nbytes),
    "is it there": lambda: x is not None and isinstance(x, torch.Tensor),
    "allocating": lambda: (torch.empty_like(x), x.new_empty(3), torch.zeros(3, 4), torch.ones(2)),
    "numbers of Python": lambda: (torch.tensor([1, 2.5]), torch.arange(7), torch.full((2,), 3)),
    "dtypes and order": lambda: (x.to(torch.float16), x.half(), x.T.contiguous(), x.view(5, 4)),
    "to where another is": lambda: torch.arange(3).to(x.device),
    "parts": lambda: (x[1:], x[0, ::2], x[:, None], x.split([1, 3]), list(lengths)),
    "rows by number": lambda: (x[lengths], x[[0, 2]], x.index_select(0, lengths)),
    "rows put by number": lambda: x.clone().__setitem__(lengths, x),
    "a choice": lambda: (torch.where(x > 0, x, 0.0), x.masked_fill(x > 0, 1), x.clamp(max=n)),
    "one number where a mask is": lambda: x.clone().__setitem__(mask, 0.0),
    "copies": lambda: (x.repeat_interleave(2, 0), x.repeat_interleave(lengths, 0, output_size=5)),
    "computing": lambda: (x @ x.T, lengths.cumsum(0), x.argsort(), x.max(), x.sum(0), x * n),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("call, names", ASKING.values(), ids=ASKING)
def test_who_asks_waits(call, names, inference):
    with CostCounter() as counter, torch.inference_mode(inference):
        call()
    assert set(counter.waits) == set(names) and (inference or counter.waits == names)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("call", NOT_ASKING.values(), ids=NOT_ASKING)
def test_who_does_not_does_not(call, inference):
    with CostCounter() as counter, torch.inference_mode(inference):
        call()
    assert counter.waits == []


GRIDS = {
    "numbers": ((2,), []),
    "a function": (lambda given: (given["length"] // given["TILE"],), []),
    "a function that asks": (lambda given: (int(given["x"].max()),), ["__int__"]),
    "a number in a tensor": ((torch.tensor(2),), ["__index__"]),
    "one from a function": (lambda given: (1, torch.tensor(2)), ["__index__"]),
}


@pytest.mark.parametrize("grid, names", GRIDS.values(), ids=GRIDS)
def test_a_grid_is_the_launchers_too(grid, names):
    ones, out = 2 * torch.ones(64), torch.empty(64)
    with lab() as seen:
        copy[grid](ones, out, 64, TILE=32)
    assert seen.waits == names
    assert seen.launches[0].programs == 2


def test_the_labs_own_questions_are_nobodys():
    out = torch.empty(64)
    with lab() as seen:
        copy[(2,)](torch.ones(64), out, 64, TILE=32)
        with counting_suspended():
            assert out.tolist() == 64 * [1] and int(out.sum()) == 64 and str(out)
    assert seen.waits == []


def test_a_message_says_what_was_asked():
    def launcher():
        return int(lengths.max()), lengths.tolist(), int(n)

    assert_asks_nothing(in_lab(lambda: len(lengths)))
    with pytest.raises(AssertionError, match=r"__int__, tolist.* waits"):
        assert_asks_nothing(in_lab(launcher))


SUBMISSION = """
import torch
import triton
import triton.language as tl

@triton.jit
def copy(x, out, length, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < length), mask=at < length)

def launcher(x, lengths, asks):
    out = torch.empty_like(x)
    most = int(lengths.max()) if asks == "launcher" else 64
    grid = (triton.cdiv(most, 32),)
    if asks == "grid":
        grid = lambda given: (lengths.tolist()[0] // 32,)
    if asks == "tensor":
        grid = (lengths[0] // 32,)
    copy[grid](x, out, most, TILE=32)
    return out

def lies(x, answer):
    from tests.grading.transport import sides
    sides.CostCounter.waits = property(lambda counter: answer, lambda counter, value: None)
    return x
"""


@pytest.fixture(scope="module")
def server():
    with contextlib.closing(ForkServer()) as server:
        folder = server.tree / "unit"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "thing.py").write_text(SUBMISSION)
        yield server


@pytest.fixture
def call(server):
    """call(name, *args) -> Seen, of a function of the submission, in official grading."""
    proxy.begin(server, time_limit=60)
    yield lambda name, *args: in_lab(Name("unit.thing", name), *args)
    proxy.end()


@pytest.mark.parametrize(
    "asks, names",
    [("nobody", []), ("launcher", ["__int__"]), ("grid", ["tolist"]), ("tensor", ["__index__"])],
)
def test_across_the_boundary(call, asks, names):
    values = torch.randn(64)
    seen = call("launcher", values, torch.tensor([64, 3]), asks)
    assert torch.equal(seen.value, values) and seen.waits == names


@pytest.mark.parametrize("answer", [None, 0, "item", [1], ["item", None], ["a line\nof its own"]])
def test_nonsense_is_refused(call, answer):
    with pytest.raises(SubmissionError, match="waits is nonsense"):
        call("lies", torch.ones(1), answer)
