"""Pruning: take out the heads, neurons, channels and layers that matter least.

How much they matter is read off one forward pass over calibration texts. What is removed leaves no
zeros behind: the matrices shrink, and what comes out is a smaller model of the same kind.

Minitron: Muralidharan et al., 2024, arXiv:2407.14679. Block influence: Men et al., 2024,
arXiv:2403.03853.
Axes: B texts, S tokens, D channels, F neurons, N query heads, K KV heads, H head width, L layers.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.compression import Importance, nats, record
from assignment.provided.models import Llama, LlamaConfig


def head_importance(
    outputs: Float[Tensor, "B S N H"], num_kv_heads: int
) -> Float[Tensor, "{num_kv_heads}"]:
    """Importance of each KV head: the sum of that of the N/K query heads that read it.

    A query head's: the norm of what it reads, ‖outputs[b, s, n]‖₂, mean over s, L2 norm over b.
    """
    raise NotImplementedError


def neuron_importance(x: Float[Tensor, "B S F"]) -> Float[Tensor, "F"]:
    """|x| of each column, mean over s, L2 norm over b: for neurons, and for channels."""
    raise NotImplementedError


def block_influence(before: Float[Tensor, "B S D"], after: Float[Tensor, "B S D"]) -> float:
    """1 − mean cos(before[b, s], after[b, s]): 0 for a layer that turns nothing."""
    raise NotImplementedError


def importance(model: Llama, tokens: Int[Tensor, "B S"]) -> Importance:
    """Of all parts of the model, from one forward pass over `tokens`.

    KV heads: `head_importance` of the inputs of each o_proj. Neurons: of those of each down_proj.
    Channels: `neuron_importance` of what the two norms of each layer return, summed over all 2·L.
    Layers: `block_influence`.
    """
    raise NotImplementedError


def loss_without(model: Llama, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "L"]:
    """For each layer, by how many nats a token the loss on `tokens` rises when it is left out."""
    raise NotImplementedError


def prune_depth(model: Llama, layers: Sequence[int]) -> Llama:
    """A new model without these layers. The model itself is not changed.

    Raises:
        ValueError: a layer does not exist, or is named twice, or none would be left.
    """
    raise NotImplementedError


def prune_width(
    model: Llama, importance: Importance, num_kv_heads: int, d_ff: int, d_model: int
) -> Llama:
    """A new model of these sizes, with the most important heads, neurons and channels.

    A KV head goes with the query heads that read it, so that N/K stays. Each layer keeps its own
    heads and neurons; the channels are the same everywhere. What is kept keeps its order; of equally
    important parts the first are kept. The model itself is not changed.

    Raises:
        ValueError: a size is below 1, or larger than it was.
    """
    raise NotImplementedError


def search_configs(
    config: LlamaConfig,
    budget: int,
    *,
    num_layers: Sequence[int],
    num_kv_heads: Sequence[int],
    d_ff: Sequence[int],
    d_model: Sequence[int],
    tolerance: float = 0.05,
) -> list[LlamaConfig]:
    """All configs of these sizes with (1 − tolerance) · budget to budget parameters, largest first.

    Every other size is that of `config`, and so is the number of query heads to a KV head. Norms,
    the embedding and an untied head count. Of equally large ones, the first in the order of the
    arguments.
    """
    raise NotImplementedError
