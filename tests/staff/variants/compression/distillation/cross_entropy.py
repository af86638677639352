"""Cross-entropy less entropy; the teacher is asked for all batches before the first step."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from assignment.provided.models import Llama
from assignment.provided.models.training import optimizers, train


def kd_loss(
    student: Float[Tensor, "B T V"],
    teacher: Float[Tensor, "B T V"],
    temperature: float = 1.0,
    real: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, ""]:
    if not 0 < temperature < float("inf"):
        raise ValueError(f"no temperature: {temperature}")
    if real is None:
        real = torch.ones(student.shape[:2], dtype=torch.bool)
    if not real.any():
        raise ValueError("nothing counts")
    student, teacher = student[real], teacher[real].detach()
    # What is −∞ for the student is far below the rest, where the teacher gives it nothing.
    lowest = student.detach().clamp(min=-1e30).amin(dim=-1, keepdim=True) - 1e4
    student = torch.where(student == -torch.inf, lowest.clamp(min=-1e30), student)
    p = (teacher / temperature).softmax(dim=-1)
    entropy = torch.special.entr(p).sum(dim=-1).mean()
    return temperature**2 * (cross_entropy(student / temperature, p) - entropy)


def hidden_loss(
    student: Float[Tensor, "B T E"],
    teacher: Float[Tensor, "B T D"],
    projection: Float[Tensor, "D E"] | None = None,
    real: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, ""]:
    if projection is None:
        if student.shape[2] != teacher.shape[2]:
            raise ValueError(f"{student.shape[2]} and {teacher.shape[2]} channels")
        error = student - teacher.detach()
    else:
        error = torch.einsum("bte,de->btd", student, projection) - teacher.detach()
    if real is not None:
        error = error * real.unsqueeze(-1)
    count = error.shape[0] * error.shape[1] if real is None else int(real.sum())
    if count == 0:
        raise ValueError("no real token")
    return error.pow(2).sum() / (count * teacher.shape[2])


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
    lessons = []
    for step in range(steps):
        tokens, real = batches(step)
        with torch.set_grad_enabled(False):
            states = teacher.hidden(tokens)
            lessons.append((tokens, real, states, teacher.logits(states)))

    def loss(step):
        tokens, real, states, logits = lessons[step]
        own = student.hidden(tokens)
        total = kd_loss(student.logits(own), logits, temperature, real)
        if hidden_weight > 0:
            total += hidden_weight * hidden_loss(own, states, real=real)
        return total

    student.requires_grad_(True)
    return train(student, loss, optimizers(student, learning_rate), steps, on_step=on_step)
