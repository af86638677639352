"""The kernel lab: Triton kernels on a machine without a GPU, and what they do there.

    with lab() as seen:
        out = add(x, y)                   # launches a Triton kernel, on CPU tensors
    launch = seen.launches[0]
    launch.loaded["x"].requested          # bytes that its programs asked for
    seen.check()                          # raises for accesses out of bounds, races, unwritten reads

A launch runs in Triton's interpreter, one program after another, in an order of chance: code that
needs another order fails. Every load and store is booked to the argument that its pointer came from.
What is not a fault but no GPU has either is repaired: the interpreter's bfloat16.
"""

from .launch import Launch, Problem, Traffic
from .session import KernelFault, Lab, lab

__all__ = ["KernelFault", "Lab", "Launch", "Problem", "Traffic", "lab"]
