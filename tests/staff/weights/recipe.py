"""What the toy models are, and how they are trained."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.training import (
    Batches,
    next_token_loss,
    optimizers,
    progress,
    train,
)

STORIES = 40_000  # of the training split
VOCABULARY = 647


@dataclass(frozen=True)
class Recipe:
    """A model and its training."""

    name: str
    config: LlamaConfig
    steps: int
    learning_rate: float
    stories_per_step: int = 8
    warm_up: int = 50
    seed: int = 1


# The draft is worth less than it could be: it is one layer, and sees a seventh of the stories. A
# better one would guess so well that there is little to learn from its misses.
RECIPES = {
    "target": Recipe(
        "target",
        LlamaConfig(
            VOCABULARY,
            num_layers=6,
            d_model=192,
            num_heads=6,
            num_kv_heads=2,
            head_dim=32,
            d_ff=352,
        ),
        steps=4800,
        learning_rate=2.5e-3,
    ),
    "draft": Recipe(
        "draft",
        LlamaConfig(
            VOCABULARY, num_layers=1, d_model=64, num_heads=4, num_kv_heads=2, head_dim=16, d_ff=640
        ),
        steps=700,
        learning_rate=5e-3,
    ),
}


def training_documents(count: int = STORIES) -> list[list[int]]:
    """The token ids of the training stories."""
    tokenizer = load_tokenizer()
    return [tokenizer.document(text) for text in story_texts("train", count)]


def trained(
    recipe: Recipe, documents: Sequence[list[int]], folder: Path
) -> tuple[Llama, list[float]]:
    """The model after its training, and the loss of every step. A training that was stopped is
    continued from `folder`."""
    model = Llama(recipe.config, seed=recipe.seed)
    batches = Batches(documents, recipe.stories_per_step, recipe.seed)

    def loss(step: int) -> Tensor:
        tokens, real = batches(step)
        return next_token_loss(model(tokens), tokens, real)

    with progress(recipe.steps, recipe.name) as on_step:
        losses = train(
            model,
            loss,
            optimizers(model, recipe.learning_rate),
            recipe.steps,
            warm_up=recipe.warm_up,
            checkpoint=folder / f"{recipe.name}.pt",
            recipe=f"{asdict(recipe)}, stories {_digest(documents)}",
            on_step=on_step,
        )
    return model.requires_grad_(False), losses


def _digest(documents: Sequence[list[int]]) -> str:
    return hashlib.sha256(repr(documents).encode()).hexdigest()[:16]
