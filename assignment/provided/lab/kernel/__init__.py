"""The kernel lab: Triton kernels on a machine without a GPU, and what they do there.

    with lab() as seen:
        out = add(x, y)                   # launches a Triton kernel, on CPU tensors
    launch = seen.launches[0]
    launch.loaded["x"].requested          # bytes that its programs asked for
    seen.check()                          # raises if it did what no kernel may
    seen.waits                            # what it asked a tensor: a GPU would be waited for
    predict(seen.launches, "H100")        # how long it would take there; GPUS lists the others
    show(seen, "H100")                    # prints all of this
    seen.compiled("sm_90")                # of each launch: registers, spills, wide loads, …

A launch runs in Triton's interpreter, one program after another, in an order of chance: code that
needs another order fails. Every load and store is booked to the argument that its pointer came
from. Outside `lab`, a launch is Triton's own, which wants a GPU; without one it says "0 active
drivers". The interpreter's bfloat16, which is wrong in all versions so far, is repaired, and its
products of float32 are in TF32, as a GPU's, unless they ask for "ieee".
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
