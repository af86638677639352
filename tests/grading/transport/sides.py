"""Work done on whichever side holds the submission: the same code in one process and in a child."""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import torch
from torch import Tensor

from assignment.provided.lab.counter import CostCounter, counting_suspended
from tests.grading.errors import SubmissionError
from tests.grading.transport.kept import kept_bytes as kept_bytes
from tests.grading.transport.wire import bytes_of, is_provided_dataclass

__tracebackhide__ = True  # a failing test's traceback goes on in the submission


def as_in_official_grading(graded: bool = True) -> None:
    """One thread, so that sums come out the same, and threads do not wait for each other.

    graded: new memory holds NaN, not zeros by luck.
    """
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("warn" if graded else "default")  # fills `torch.empty`


def watch(target: Callable, args: Sequence, kwargs: dict) -> tuple[object, list[str]]:
    """Call `target`: (value, names of the tensors and lists among its arguments that it changed).

    A name is "0" for the first positional argument, or the keyword.
    """
    named = {str(i): arg for i, arg in enumerate(args)} | kwargs
    before = {name: _copy(arg) for name, arg in named.items()}
    value = target(*args, **kwargs)
    return value, [name for name, copy in before.items() if not _same(copy, named[name])]


def call_then_spoil(target: Callable, args: Sequence, kwargs: dict) -> object:
    """Call `target`, and then change its tensors and lists in place, as a caller may."""
    value = target(*args, **kwargs)
    for argument in (*args, *kwargs.values()):
        _spoil(argument)
    return value


def read_then_spoil(target: object, name: str) -> object:
    """Read an attribute, and change what came in place; the attribute as it was."""
    value = getattr(target, name)
    before = _copy(value)
    _spoil(value)
    return before


def _spoil(value: object) -> None:
    if isinstance(value, Tensor):
        value.add_(5) if value.dtype != torch.bool else value.logical_not_()
    elif isinstance(value, list):
        value.clear()


def observe(target: Callable, args: Sequence, kwargs: dict) -> tuple:
    """Call `target` under the cost counter: (value, cost)."""
    with CostCounter() as counter:
        value = target(*args, **kwargs)
    return value, counter.cost


def count_lines(target: Callable, args: Sequence, kwargs: dict) -> tuple[object, int]:
    """Call `target`: (value, how many lines of the submission's own files that executed)."""
    lines = 0

    def trace(frame: FrameType, event: str, _) -> Callable | None:
        nonlocal lines
        if event == "call" and not _is_of_the_submission(frame):
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()  # a debugger's, or coverage's
    sys.settrace(trace)
    try:
        value = target(*args, **kwargs)
    finally:
        sys.settrace(before)
    return value, lines


def _is_of_the_submission(frame: FrameType) -> bool:
    module, file = frame.f_globals.get("__name__"), frame.f_code.co_filename
    return str(module).startswith("submission.") and not file.startswith("<")  # a checker's code


def grad_of(target: Callable, inputs: Sequence, cotangent: Tensor | None) -> tuple:
    """(value, [∂ Σ value·cotangent / ∂ input for each of floats]); no cotangent means ones."""
    given = [
        tensor.detach().clone().requires_grad_() if _is_differentiable(tensor) else tensor
        for tensor in inputs
    ]
    leaves = [value for value in given if _is_differentiable(value)]
    value = target(*given)
    return value.detach(), _gradients(value, leaves, cotangent, "any argument")


def parameter_grads(
    module: torch.nn.Module, inputs: Sequence, cotangent: Tensor | None
) -> dict[str, Tensor]:
    """∂ Σ module(*inputs)·cotangent / ∂ parameter, by the parameter's name."""
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    value = module(*inputs)
    gradients = _gradients(value, list(parameters.values()), cotangent, "any parameter")
    return dict(zip(parameters, gradients, strict=True))


def _gradients(value: Tensor, leaves: list, cotangent: Tensor | None, what: str) -> list[Tensor]:
    if not value.requires_grad:
        raise SubmissionError(
            f"the result does not depend on {what} for autograd: it is detached, or was "
            "computed without gradients"
        )
    weights = torch.ones_like(value) if cotangent is None else cotangent
    grads = torch.autograd.grad(value, leaves, weights, allow_unused=True)
    zeros = [torch.zeros_like(leaf) for leaf in leaves]
    return [z if g is None else g for g, z in zip(grads, zeros, strict=True)]


def call_with_parameters(target: Callable, args: Sequence) -> object:
    """Call `target`, with parameters in place of tensors of floats."""
    given = [torch.nn.Parameter(arg) if _is_differentiable(arg) else arg for arg in args]
    return target(*given)


def in_lab(target: Callable, args: Sequence, seed: int, integer_bits: int) -> tuple:
    """Call `target` in the kernel lab: (value, the lab)."""
    from assignment.provided.lab.kernel import lab
    from assignment.provided.lab.kernel.session import launches_go_to
    from tests.grading.kernels.checking import check_kernel

    def checked(kernel, *launch) -> None:
        check_kernel(kernel)
        opened.run(kernel, *launch)

    with lab(seed, integer_bits) as opened, launches_go_to(checked):
        value = target(*args)
    return value, opened


def in_far_lab(target: Callable, args: Sequence, send: Callable) -> tuple:
    """Call `target`, its launches sent away.

    (value, arguments afterwards, cost of torch work, what it waits for.)
    """
    from tests.grading.kernels.sending import launches_sent

    with CostCounter() as counter, launches_sent(send):
        value = target(*args)
    return value, list(args), counter.cost, counter.waits


def _is_differentiable(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def uncounted(function: Callable) -> Callable:
    """`function` as it is, but what it does is not counted: it belongs to the test."""

    @functools.wraps(function, updated=())
    def call(*args, **kwargs):
        with counting_suspended():
            return function(*args, **kwargs)

    return call


def _copy(value: object) -> object:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if is_provided_dataclass(value):
        twin = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(twin, field.name, _copy(getattr(value, field.name)))
        return twin
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _same(left: object, right: object) -> bool:
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if is_provided_dataclass(left):
        names = [field.name for field in dataclasses.fields(left)]
        return all(_same(getattr(left, name), getattr(right, name)) for name in names)
    if not isinstance(left, Tensor):
        return left is right or (type(left) is type(right) and left == right)
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(bytes_of(left), bytes_of(right))
