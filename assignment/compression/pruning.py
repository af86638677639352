"""Pruning: take out the heads, neurons, channels and layers that matter least.

How much they matter is read off a forward pass over calibration texts, without gradients. What is
removed leaves no zeros behind: the matrices shrink, and what comes out is a smaller model of the
same kind. All layers have full attention: `config.attention` is empty.

Minitron: Muralidharan et al., "Compact Language Models via Pruning and Knowledge Distillation",
2024, arXiv:2407.14679. Block influence: Men et al., "ShortGPT", 2024, arXiv:2403.03853.

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
    """Importance of each KV head: the sum of that of the N / K query heads that read it.

    A query head's importance is the length of what it read, ‖outputs[b, s, n]‖₂, averaged over the
    tokens s of a text; of these means, the L2 norm over the texts b. Query head n reads KV head
    n // (N / K).

    In float32, whatever the dtype of the outputs: bfloat16 makes unequal heads equal. 2–3 lines, of
    which one also serves `neuron_importance`.
    """
    raise NotImplementedError


def neuron_importance(x: Float[Tensor, "B S F"]) -> Float[Tensor, "F"]:
    """Importance of each column of x, a neuron or a channel: |x[b, s, f]|, mean over s, L2 norm
    over b. In float32, whatever the dtype of x.
    """
    raise NotImplementedError


def block_influence(before: Float[Tensor, "B S D"], after: Float[Tensor, "B S D"]) -> float:
    """How far a layer turns the residual stream: 1 − mean of cos(before[b, s], after[b, s]).

    0 for a layer that turns nothing, however much it stretches. The mean is over all B·S tokens.
    In float32, whatever the dtype: cosines are near 1, and bfloat16 knows nothing between
    1 and 0.996.
    """
    raise NotImplementedError


def importance(model: Llama, tokens: Int[Tensor, "B S"]) -> Importance:
    """Importance of all parts of the model, from one forward pass over `tokens`.

    kv_heads: `head_importance` of what enters o_proj in each layer, N heads of width H.
    neurons: `neuron_importance` of what enters down_proj.
    channels: `neuron_importance` of what the two norms of a layer return, which is what enters
        q_proj and gate_proj; summed over all 2·L norms. All layers share the channels.
    layers: `block_influence` of each.

    All in float32, whatever the dtype of the model.

    Hint: `record` keeps all of this. 8–12 lines.
    """
    raise NotImplementedError


def prune_depth(model: Llama, layers: Sequence[int]) -> Llama:
    """A new model without these layers, which may be named in any order. The others move up; a copy
    if none is named.

    The new model has the dtype of the old one, which is not changed and shares no memory with it.
    About 10 lines. Hint: `Llama(config, seed=None)` has no weights yet, and
    `load_state_dict(…, assign=True)` takes tensors as they are, in their dtype.

    Raises:
        ValueError: a layer does not exist (there is no layer −1), or is named twice, or none would
            be left.
    """
    raise NotImplementedError


def loss_without(model: Llama, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "L"]:
    """For each layer, by how much the loss on `tokens` rises when that layer alone is left out.

    In nats a token (`nats`); below 0 where the model is better without. For a model of two layers
    or more. The whole model runs once, and a model without a layer L times. 3–4 lines.
    """
    raise NotImplementedError


def prune_width(
    model: Llama, importance: Importance, num_kv_heads: int, d_ff: int, d_model: int
) -> Llama:
    """A new model of these sizes, made of the most important KV heads, neurons and channels.

    A KV head goes with the query heads that read it: N / K stays, and so does H. Each layer keeps
    heads and neurons of its own choice. Channels are the same everywhere, also in the embedding,
    in all norms, and in the head, if it is a matrix of its own. What is kept keeps its order; of
    equally important parts the first are kept. Importance is at least 0, and often 0.

    The new model has the dtype of the old one, which is not changed and shares no memory with it.
    About 25 lines. Hint: of a matrix [out, in], the rows belong to what it writes and the columns
    to what it reads; write down both for each of the seven.

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

    Both ends count. All else is as in `config`, also N / K and H. Every weight counts: matrices,
    norms, the embedding, and the head if it is untied. Of equally large configs, the first is that
    which nested loops meet first: over num_layers, in it over num_kv_heads, d_ff, d_model, each in
    the given order. About 15 lines.
    """
    raise NotImplementedError
