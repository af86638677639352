"""The training loop, which can be stopped and resumed at any time."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.optim import Optimizer

CLIP_NORM = 1.0  # gradients of a larger norm, over all parameters, are scaled down to it


def train(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    optimizers: Sequence[Optimizer],
    steps: int,
    *,
    warm_up: int = 0,
    checkpoint: str | Path | None = None,
    recipe: str = "",
    save_every: int = 50,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train `model` in place and return the loss of every step.

    The learning rate rises linearly over the first `warm_up` steps, then starts at what each
    optimizer was made with and falls linearly to zero: https://arxiv.org/abs/2502.15938.

    Args:
        model: whose parameters are trained and saved.
        loss: loss(step) -> a scalar, for step 0 … steps − 1. It must depend on nothing but the
            step and the model's parameters.
        optimizers: over parameters of `model`, fresh.
        steps: how many updates.
        warm_up: how many of them rise.
        checkpoint: a file that holds the state of the run, written every `save_every` steps and
            after the last. If it exists the run continues from it; stopped by Ctrl-C or otherwise,
            a run loses what came after the last save. Delete it when its result is kept.
        recipe: names what `train` cannot see and the result depends on: the data, the loss, ….
        save_every: steps between two saves.
        on_step: on_step(step, loss) is called after each update.

    Raises:
        ValueError: if `checkpoint` belongs to another training (one that starts from other weights,
            or has other steps, optimizers or `recipe`), or if an argument does not fit.
        FloatingPointError: if the loss or its gradient is not finite.
    """
    if not 0 <= warm_up < steps:
        raise ValueError(f"warm_up: expected 0 or more, and less than {steps} steps, got {warm_up}")
    if save_every < 1:
        raise ValueError(f"save_every: expected at least 1, got {save_every}")
    # Before a checkpoint is read, which holds the rates of its last step.
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    losses: list[float] = []
    if checkpoint is not None:
        checkpoint = Path(checkpoint)
        training = _description(model, optimizers, steps, warm_up, recipe)
        losses = _restore(checkpoint, training, model, optimizers)

    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    for step in range(len(losses), steps):
        share = min((step + 1) / (warm_up + 1), (steps - step) / (steps - warm_up))
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = peak * share
        losses.append(_update(model, loss, optimizers, step))
        if checkpoint is not None and ((step + 1) % save_every == 0 or step + 1 == steps):
            _save(checkpoint, training, model, optimizers, losses)
        if on_step is not None:
            on_step(step, losses[-1])
    return losses


@contextmanager
def progress(steps: int, title: str = "training") -> Iterator[Callable[[int, float], None]]:
    """`with progress(steps) as on_step:` a bar with the loss, on stderr; where that is no terminal,
    a line every tenth of the way."""
    console = Console(stderr=True)
    if not console.is_terminal:

        def line(step: int, loss: float) -> None:
            if step * 10 // steps < (step + 1) * 10 // steps:
                console.print(f"{title}: step {step + 1} of {steps}, loss {loss:.3f}")

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    columns += (TextColumn("loss {task.fields[loss]}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=steps, loss="–")
        yield lambda step, loss: bar.update(task, completed=step + 1, loss=f"{loss:.3f}")


def _update(
    model: nn.Module, loss: Callable[[int], Tensor], optimizers: Sequence[Optimizer], step: int
) -> float:
    model.zero_grad()
    value = loss(step)
    if value.dim() or not value.requires_grad:
        raise ValueError(
            f"loss: expected a scalar that depends on the model's parameters, got shape "
            f"{list(value.shape)}, requires_grad {value.requires_grad}"
        )
    value.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    # Checked before the update: weights that are not finite would be saved.
    if not (value.isfinite() and norm.isfinite()):
        raise FloatingPointError(f"step {step}: loss {value.item()}, gradient norm {norm.item()}")
    for optimizer in optimizers:
        optimizer.step()
    return value.item()


def _description(
    model: nn.Module, optimizers: Sequence[Optimizer], steps: int, warm_up: int, recipe: str
) -> dict[str, str]:
    """What makes a training this one and no other."""
    weights = hashlib.sha256()
    for name, value in model.state_dict().items():
        weights.update(f"{name} {list(value.shape)} {value.dtype}".encode())
        weights.update(value.detach().cpu().flatten().view(torch.uint8).numpy())
    settings = [
        (type(optimizer).__name__, {k: v for k, v in group.items() if k != "params"})
        for optimizer in optimizers
        for group in optimizer.param_groups
    ]
    return {
        "initial weights": weights.hexdigest(),
        "optimizers": repr(settings),
        "steps": f"{steps}, {warm_up} of them warm-up",
        "recipe": recipe,
    }


def _save(
    path: Path,
    training: dict[str, str],
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    losses: list[float],
) -> None:
    state = {
        "training": training,
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "losses": losses,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and then renamed: whoever stops us, `path` is one whole checkpoint or another.
    part = path.with_name(path.name + ".part")
    torch.save(state, part)
    os.replace(part, path)


def _restore(
    path: Path, training: dict[str, str], model: nn.Module, optimizers: Sequence[Optimizer]
) -> list[float]:
    """Load `path` into model and optimizers, if it exists; the losses of the steps it has done."""
    if not path.exists():
        return []
    try:
        state = torch.load(path)
        saved_training = state["training"]
    except Exception as error:  # torch.load has no error of its own for a file that is not its
        raise ValueError(
            f"checkpoint: {path} cannot be read; is it one? Delete it to start over."
        ) from error
    other = [key for key, value in training.items() if saved_training.get(key) != value]
    if other:
        raise ValueError(
            f"checkpoint: {path} is of another training (it differs in: {', '.join(other)}). "
            "Delete it to start over."
        )
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return state["losses"]
