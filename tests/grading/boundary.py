"""What a graded test may do with a submission besides calling it: watch, count, spoil, derive.

Works the same in one process and across the process boundary; the counting itself always happens on
the submission's side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from assignment.provided.lab.counter import Cost
from tests.grading.errors import SubmissionError
from tests.grading.transport import proxy, sides


@dataclass(frozen=True)
class Observation:
    """A call's value and its cost."""

    value: object
    cost: Cost


@dataclass(frozen=True)
class Lines:
    """A call's value, and how many lines of the submission's own files it executed."""

    value: object
    count: int


def observe(target: Callable, *args, **kwargs) -> Observation:
    """Call `target` (a name of the submission, a handle, or a handle's method) and count its cost.

    Callables written in a test and passed as arguments are not counted.
    """
    if is_remote(target):
        seen = proxy.request("observe", target=target, args=list(args), kwargs=kwargs)
    else:
        args = [_uncounted(arg) for arg in args]
        seen = sides.observe(target, args, {name: _uncounted(a) for name, a in kwargs.items()})
    value, cost = seen
    check_cost(cost)
    return Observation(value, cost)


def count_lines(target: Callable, *args, **kwargs) -> Lines:
    """Call `target` and count the lines that it executes in the submission's own files.

    A line that is executed n times counts n times, one of a comprehension, too. What is done inside
    Python or a library does not count, as `list(x)` and `x in y`.
    """
    if is_remote(target):
        seen = proxy.request("count_lines", target=target, args=list(args), kwargs=kwargs)
    else:
        seen = sides.count_lines(target, args, kwargs)
    value, count = seen
    if type(count) is not int or count < 0:
        raise SubmissionError("the line counter in the submission's process answers nonsense")
    return Lines(value, count)


def watch(target: Callable, *args, **kwargs) -> tuple[object, list[str]]:
    """Call `target`: its value, and the names of the arguments (tensors, lists) it changed.

    A name is "0" for the first positional argument, or the keyword. Across the boundary the call
    gets copies, so the test's own tensors tell nothing.
    """
    if is_remote(target):
        return proxy.request("watch", target=target, args=list(args), kwargs=kwargs)
    return sides.watch(target, args, kwargs)


def call_then_spoil(target: Callable, *args, **kwargs) -> object:
    """Call `target`, then add 5 to its tensors and empty its lists: it must not keep them."""
    if is_remote(target):
        return proxy.request("call_then_spoil", target=target, args=list(args), kwargs=kwargs)
    return sides.call_then_spoil(target, args, kwargs)


def read_then_spoil(target: object, name: str) -> object:
    """Read a tensor attribute, then add 5 to what came: it must have been a copy."""
    if is_remote(target):
        return proxy.request("read_then_spoil", target=target, name=name)
    return sides.read_then_spoil(target, name)


def grad_of(
    target: Callable, *inputs: object, cotangent: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """`target(*inputs)`, and the gradients of Σ output · cotangent (default: ones).

    One gradient for each input that is a tensor of floats.
    """
    if is_remote(target):
        return proxy.request("grad", target=target, inputs=list(inputs), cotangent=cotangent)
    return sides.grad_of(target, inputs, cotangent)


def parameter_grads(
    module: Callable, *inputs: object, cotangent: Tensor | None = None
) -> dict[str, Tensor]:
    """The gradients of Σ module(*inputs) · cotangent (default: ones) by a module's parameters."""
    if is_remote(module):
        arguments = {"target": module, "inputs": list(inputs), "cotangent": cotangent}
        return proxy.request("parameter_grads", **arguments)
    return sides.parameter_grads(module, inputs, cotangent)


def call_with_parameters(target: Callable, *args) -> object:
    """Call `target`; its tensors of floats are parameters that are trained, as a layer's weight."""
    if is_remote(target):
        return proxy.request("call_with_parameters", target=target, args=list(args))
    return sides.call_with_parameters(target, args)


def kept_bytes(holder: object) -> int:
    """Bytes of memory of all tensors and arrays that an object keeps alive, each once.

    Reached from its attributes: buffers, modules, what lists and closures hold, what a view is of,
    and what autograd would go back to.
    """
    if not is_remote(holder):
        return sides.kept_bytes(holder)
    size = proxy.request("kept_bytes", holder=holder)
    if type(size) is not int or size < 0:
        raise SubmissionError("the count of kept bytes in the submission's process is nonsense")
    return size


def check_cost(cost: object) -> None:
    """
    Raises:
        SubmissionError: it is no Cost, or one with other things than integers in it.
    """
    if type(cost) is not Cost or not all(type(n) is int for n in vars(cost).values()):
        raise SubmissionError("the cost counter in the submission's process answers nonsense")


def is_remote(target: object) -> bool:
    """Whether it lives in another process."""
    return isinstance(target, proxy.Name | proxy.Handle)


def _uncounted(argument: object) -> object:
    """A test's own function, made invisible to the counter; everything else as it is."""
    return sides.uncounted(argument) if _is_of_a_test(argument) else argument


def _is_of_a_test(argument: object) -> bool:
    where = getattr(argument, "__module__", None)  # of a function, or of an object's class
    return callable(argument) and isinstance(where, str) and where.startswith("tests.")
