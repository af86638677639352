"""How much each part of a model matters."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Importance:
    """A number for each part of a Llama: the larger, the more is lost without it.

    kv_heads: [L K], each KV head with the query heads that read it.
    neurons: [L F], of the MLPs.
    channels: [D], of the residual stream, which all layers share.
    layers: [L].
    """

    kv_heads: Tensor
    neurons: Tensor
    channels: Tensor
    layers: Tensor
