"""What the toy models are, and how they are trained."""

from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.training import (
    batch_of,
    next_token_loss,
    optimizers,
    progress,
    train,
)

STORIES = 48_000  # of the training split
ROW = 256  # tokens of a row: one story and a half
VOCABULARY = 752


@dataclass(frozen=True)
class Recipe:
    """A model and its training."""

    name: str
    config: LlamaConfig
    steps: int
    learning_rate: float
    rows_per_step: int = 8
    warm_up: int = 40
    seed: int = 1


def _config(num_layers: int, d_model: int, num_heads: int, head_dim: int, d_ff: int) -> LlamaConfig:
    return LlamaConfig(VOCABULARY, num_layers, d_model, num_heads, 2, head_dim, d_ff)


RECIPES = {
    "target": Recipe("target", _config(6, 192, 6, 32, 352), steps=2400, learning_rate=5e-3),
    "draft": Recipe("draft", _config(2, 64, 4, 16, 256), steps=3000, learning_rate=1e-2),
}


def training_documents(count: int = STORIES) -> list[list[int]]:
    """The token ids of the training stories."""
    tokenizer = load_tokenizer()
    return [tokenizer.document(text) for text in story_texts("train", count)]


def trained(recipe: Recipe, rows: Tensor, folder: Path) -> tuple[Llama, list[float]]:
    """The model after its training, and the loss of every step. A training that was stopped is
    continued from `folder`."""
    model = Llama(recipe.config, seed=recipe.seed)

    def loss(step: int) -> Tensor:
        batch = batch_of(rows, step, recipe.rows_per_step, recipe.seed)
        return next_token_loss(model(batch), batch)

    with progress(recipe.steps, recipe.name) as on_step:
        losses = train(
            model,
            loss,
            optimizers(model, recipe.learning_rate),
            recipe.steps,
            warm_up=recipe.warm_up,
            checkpoint=folder / f"{recipe.name}.pt",
            recipe=f"{asdict(recipe)}, {list(rows.shape)} rows",
            on_step=on_step,
        )
    return model.requires_grad_(False), losses
