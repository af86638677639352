"""The kernel lab: Triton kernels on a machine without a GPU, and what they do there.

    with lab() as seen:
        out = add(x, y)                   # launches a Triton kernel, on CPU tensors
    launch = seen.launches[0]
    launch.loaded["x"].requested          # bytes that its programs asked for
    seen.check()                          # raises if it did what no kernel may
    predict(seen.launches, GPUS["H100"])  # how long it would take there
    show(seen, GPUS["H100"])              # prints all of this

A launch runs in Triton's interpreter, one program after another, in an order of chance: code that
needs another order fails. Every load and store is booked to the argument that its pointer came
from. The interpreter's bfloat16, which is wrong in all versions so far, is repaired.
"""

from ..roofline import Point
from ..roofline_picture import roofline_svg, roofline_text
from .faults import KernelFault
from .gpus import GPU, GPUS
from .launch import Launch, Problem, Traffic
from .session import Lab, lab
from .showing import show
from .time_model import Prediction, predict

__all__ = [
    "GPU",
    "GPUS",
    "KernelFault",
    "Lab",
    "Launch",
    "Point",
    "Prediction",
    "Problem",
    "Traffic",
    "lab",
    "predict",
    "roofline_svg",
    "roofline_text",
    "show",
]
