"""The student, half the toy target, and the four ways to train it that are compared.

Identify, prune, distil, as Muralidharan et al., 2024, arXiv:2407.14679 do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.toy import load_toy
from assignment.provided.models.training import Batches, next_token_loss, optimizers, train
from solutions.compression.distillation import distil
from solutions.compression.pruning import (
    importance,
    loss_without,
    prune_depth,
    prune_width,
    search_configs,
)

SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast.

    learning_rate: of what begins as a part of the target; it has not been tuned.
    learning_rate_from_scratch: the best of 4e-3, 8e-3 and 16e-3 on tokens, for stories and
        weights of another seed.
    """

    steps: int
    stories_per_step: int
    learning_rate: float
    learning_rate_from_scratch: float


@dataclass(frozen=True)
class Search:
    """What is tried: the target's sizes and smaller ones, and the best few for a short while."""

    num_layers: tuple[int, ...] = (6, 5, 4, 3)
    num_kv_heads: tuple[int, ...] = (2, 1)
    d_ff: tuple[int, ...] = (352, 288, 224, 192, 128)
    d_model: tuple[int, ...] = (192, 176, 160, 144)
    finalists: int = 3
    trial_steps: int = 25


@dataclass(frozen=True)
class Calibration:
    """Beginnings of training stories: rows of one length, so that none is padded."""

    stories: int = 64
    tokens: int = 96


SCHEDULE = Schedule(
    steps=120, stories_per_step=4, learning_rate=4e-3, learning_rate_from_scratch=8e-3
)
SEARCH, CALIBRATION = Search(), Calibration()


@dataclass(frozen=True)
class Way:
    """How a student begins, and what it learns from: the target's probabilities, or the tokens."""

    pruned: bool
    distilled: bool


WAYS = {
    "pruned, distilled": Way(pruned=True, distilled=True),
    "pruned, on tokens": Way(pruned=True, distilled=False),
    "from scratch, distilled": Way(pruned=False, distilled=True),
    "from scratch, on tokens": Way(pruned=False, distilled=False),
}
BASELINE = "from scratch, on tokens"


@cache
def target() -> Llama:
    return load_toy("target")


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# ---- identify and prune ------------------------------------------------------------------------


def calibration() -> Tensor:
    """[stories, tokens]."""
    texts = story_texts("train", 2 * CALIBRATION.stories)
    documents = [load_tokenizer().document(text) for text in texts]
    rows = [d[: CALIBRATION.tokens] for d in documents if len(d) >= CALIBRATION.tokens]
    return torch.tensor(rows[: CALIBRATION.stories])


def half_sizes(config: LlamaConfig) -> list[LlamaConfig]:
    """The configs of SEARCH with half the parameters, or hardly less."""
    budget = parameters(Llama(config, seed=None)) // 2
    tried = {
        name: getattr(SEARCH, name) for name in ("num_layers", "num_kv_heads", "d_ff", "d_model")
    }
    return search_configs(config, budget, **tried)


def pruned(model: Llama, config: LlamaConfig, tokens: Tensor) -> tuple[Llama, list[int]]:
    """The model in these sizes, and which of its layers went.

    Layers go one by one, each time the one without which the loss rises least; then heads, neurons
    and channels by their importance in what is left.
    """
    kept, rest = list(range(model.config.num_layers)), model
    while len(kept) > config.num_layers:
        least = int(loss_without(rest, tokens).argmin())
        rest = prune_depth(rest, [least])
        kept.pop(least)
    matters = importance(rest, tokens)
    small = prune_width(rest, matters, config.num_kv_heads, config.d_ff, config.d_model)
    return small, [layer for layer in range(model.config.num_layers) if layer not in kept]


def choose(score: Callable[[Llama], float]) -> list[dict]:
    """All sizes that were tried, the best first: pruned, scored, and the best few again after a
    short distillation. Pruned models that have not trained rank poorly among themselves.

    Args:
        score: of a model on stories to choose by, the lower the better.
    """
    tokens, tried = calibration(), []
    for config in half_sizes(target().config):
        model, layers = pruned(target(), config, tokens)
        tried.append({"model": model, "layers_removed": layers, "before": score(model)})
    tried.sort(key=lambda one: one["before"])
    for one in tried:
        one["after"] = None
    best, others = tried[: SEARCH.finalists], tried[SEARCH.finalists :]
    for one in best:
        student, steps = copy_of(one["model"]), SEARCH.trial_steps
        batches = story_batches(0, steps)
        distil(student, target(), batches, steps, learning_rate=SCHEDULE.learning_rate)
        one["after"] = score(student)
    return sorted(best, key=lambda one: one["after"]) + others


def copy_of(model: Llama) -> Llama:
    other = Llama(model.config, seed=None)
    other.load_state_dict(model.state_dict())
    return other


# ---- train -------------------------------------------------------------------------------------


def story_batches(seed: int, steps: int) -> Batches:
    """Stories of the train split, each once. Another seed has other stories; a way does not."""
    size = SCHEDULE.stories_per_step
    start = seed * SCHEDULE.steps * size
    documents = [load_tokenizer().document(t) for t in story_texts("train", steps * size, start)]
    return Batches(documents, size, seed)


def begun(way: Way, student: Llama, seed: int) -> Llama:
    """The student before its training: the pruned one, or its sizes with random weights."""
    return copy_of(student) if way.pruned else Llama(student.config, seed=seed)


def learn(
    way: Way, model: Llama, seed: int, on_step: Callable[[int, float], None]
) -> Sequence[float]:
    """Train the model, in place; the loss of every step.

    Both kinds take `train` without a warm-up, which is what `distil` does.
    """
    steps, batches = SCHEDULE.steps, story_batches(seed, SCHEDULE.steps)
    rate = SCHEDULE.learning_rate if way.pruned else SCHEDULE.learning_rate_from_scratch
    if way.distilled:
        return distil(model, target(), batches, steps, learning_rate=rate, on_step=on_step)

    def loss(step: int) -> Tensor:
        tokens, real = batches(step)
        return next_token_loss(model(tokens), tokens, real)

    return train(model, loss, optimizers(model, rate), steps, on_step=on_step)
