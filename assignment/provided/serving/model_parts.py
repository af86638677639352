"""A model whose parts are functions, for tests of what calls it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from assignment.provided.models import LlamaConfig


@dataclass(frozen=True)
class ModelParts:
    """As much of a `Llama` as a server uses, each part a function of yours.

    hidden: (tokens [B T], positions [B T], attend) -> [B T D].
    logits: (hidden [B T D]) -> [B T V].
    """

    config: LlamaConfig
    dtype: torch.dtype
    hidden: Callable
    logits: Callable
