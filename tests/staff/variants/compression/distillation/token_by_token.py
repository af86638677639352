"""Loops over the tokens that count, each with the ids that can come; losses kept by `on_step`."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from assignment.provided.models import Llama
from assignment.provided.models.training import optimizers, train


def kd_loss(
    student: Float[Tensor, "B T V"],
    teacher: Float[Tensor, "B T V"],
    temperature: float = 1.0,
    real: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, ""]:
    if temperature <= 0:
        raise ValueError(f"temperature {temperature}")
    divergences = []
    for b, t in _places(student, real):
        ours, theirs = student[b, t] / temperature, teacher[b, t].detach() / temperature
        some = theirs.softmax(dim=0) > 0
        log_p = theirs[some] - theirs.logsumexp(dim=0)
        log_q = ours[some] - ours.logsumexp(dim=0)
        divergences.append((log_p.exp() * (log_p - log_q)).sum())
    return torch.stack(divergences).mean() * temperature**2


def hidden_loss(
    student: Float[Tensor, "B T E"],
    teacher: Float[Tensor, "B T D"],
    projection: Float[Tensor, "D E"] | None = None,
    real: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, ""]:
    errors = []
    for b, t in _places(student, real):
        state, wanted = student[b, t], teacher[b, t].detach()
        state = state if projection is None else projection @ state
        if len(state) != len(wanted):
            raise ValueError(f"{len(state)} channels for {len(wanted)}")
        errors.append(torch.linalg.vector_norm(state - wanted) ** 2 / len(wanted))
    return sum(errors) / len(errors)


def _places(tensor: Tensor, real: Tensor | None) -> list[tuple[int, int]]:
    def all_that_count() -> Iterator[tuple[int, int]]:
        for b in range(tensor.shape[0]):
            for t in range(tensor.shape[1]):
                if real is None or bool(real[b, t]):
                    yield b, t

    places = list(all_that_count())
    if not places:
        raise ValueError("real: no token counts")
    return places


@torch.no_grad()
def asked(teacher, tokens):
    return teacher(tokens)


def distil(
    student: Llama,
    teacher: Llama,
    batches: Callable[[int], tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]],
    steps: int,
    *,
    learning_rate: float,
    temperature: float = 1.0,
    hidden_weight: float = 0.0,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    losses: list[float] = []

    def keep(step: int, loss: float) -> None:
        losses.append(loss)
        if on_step is not None:
            on_step(step, loss)

    def loss(step: int) -> Tensor:
        tokens, real = batches(step)
        value = kd_loss(student(tokens), asked(teacher, tokens), temperature, real)
        if hidden_weight:
            states = student.hidden(tokens), asked(teacher.hidden, tokens)
            value = value + hidden_weight * hidden_loss(*states, None, real)
        return value

    for parameter in student.parameters():
        parameter.requires_grad_()
    train(student, loss, optimizers(student, learning_rate), steps, on_step=keep)
    return losses
