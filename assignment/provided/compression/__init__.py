"""What the parts of compression say to each other, and what they need to know of a model.

Quantized     codes, scales and zero points of a tensor
Importance    how much each part of a Llama matters
record        what a model computes on the way to its logits: Recording
with_linears  a copy of a model with other linear layers
nats          mean −log p of each next token; perplexity is its exponential
"""

from .importance import Importance
from .linears import LINEARS, linears, with_linears
from .perplexity import nats
from .quantized import Quantized, number_of_groups
from .recording import Recording, record

__all__ = [
    "LINEARS",
    "Importance",
    "Quantized",
    "Recording",
    "linears",
    "nats",
    "number_of_groups",
    "record",
    "with_linears",
]
