"""What the toy models are, and how they are trained."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.exact import ExactLaw
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.training import (
    Batches,
    next_token_loss,
    optimizers,
    progress,
    train,
)

STORIES = 36_000  # of the training split
VOCABULARY = 647


@dataclass(frozen=True)
class Recipe:
    """A model and its training."""

    name: str
    config: LlamaConfig
    steps: int
    learning_rate: float
    from_law: bool  # learns the exact law of each next word, not the word that happened to come
    stories_per_step: int = 8
    warm_up: int = 50
    seed: int = 1


# The law has no chance in it: the target learns from it in half the steps. The draft has one layer,
# and sees a sixth of the stories: a better one would hardly ever be wrong.
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
        steps=3000,
        learning_rate=3e-3,
        from_law=True,
        stories_per_step=12,
    ),
    "draft": Recipe(
        "draft",
        LlamaConfig(
            VOCABULARY, num_layers=1, d_model=64, num_heads=4, num_kv_heads=2, head_dim=16, d_ff=640
        ),
        steps=700,
        learning_rate=5e-3,
        from_law=False,
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
    exact = ExactLaw(load_tokenizer())

    def loss(step: int) -> Tensor:
        tokens, real = batches(step)
        logits = model(tokens)
        if not recipe.from_law:
            return next_token_loss(logits, tokens, real)
        laws = [exact(row[mask].tolist()) for row, mask in zip(tokens, real, strict=True)]
        predicted = [row[: len(law)] for row, law in zip(logits, laws, strict=True)]
        return F.cross_entropy(torch.cat(predicted), torch.cat(laws))

    with progress(recipe.steps, recipe.name) as on_step:
        losses = train(
            model,
            loss,
            optimizers(model, recipe.learning_rate),
            recipe.steps,
            warm_up=recipe.warm_up,
            checkpoint=folder / f"{recipe.name}.pt",
            save_every=20,
            recipe=f"{asdict(recipe)}, stories {_digest(documents)}",
            on_step=on_step,
        )
    return model.requires_grad_(False), losses


def _digest(documents: Sequence[list[int]]) -> str:
    return hashlib.sha256(repr(documents).encode()).hexdigest()[:16]
