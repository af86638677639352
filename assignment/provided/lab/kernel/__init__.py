"""The kernel lab: Triton kernels on a machine without a GPU, and what they do there.

    with lab() as seen:
        out = add(x, y)                   # launches a Triton kernel, on CPU tensors
    launch = seen.launches[0]
    launch.loaded["x"].requested          # bytes that its programs asked for
    seen.check()                          # raises if it did what no kernel may

A launch runs in Triton's interpreter, one program after another, in an order of chance: code that
needs another order fails. Every load and store is booked to the argument that its pointer came
from. The interpreter's bfloat16, which is wrong in all versions so far, is repaired.
"""

from .launch import Launch, Problem, Traffic
from .session import KernelFault, Lab, lab

__all__ = ["KernelFault", "Lab", "Launch", "Problem", "Traffic", "lab"]
