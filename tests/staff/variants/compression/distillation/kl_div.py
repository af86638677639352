"""torch's kl_div and mse_loss, padding multiplied by 0, and the loop written out."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from assignment.provided.models import Llama
from assignment.provided.models.training import optimizers


def kd_loss(
    student: Float[Tensor, "B T V"],
    teacher: Float[Tensor, "B T V"],
    temperature: float = 1.0,
    real: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, ""]:
    if temperature <= 0:
        raise ValueError("temperature")
    log_q = F.log_softmax(student.float() / temperature, dim=-1)
    with torch.no_grad():
        p = F.softmax(teacher.float() / temperature, dim=-1)
    log_q = log_q.masked_fill(p == 0, 0)
    terms = F.kl_div(log_q, p, reduction="none").sum(dim=-1)
    return _weighted(terms, real) * temperature * temperature


def hidden_loss(
    student: Float[Tensor, "B T E"],
    teacher: Float[Tensor, "B T D"],
    projection: Float[Tensor, "D E"] | None = None,
    real: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, ""]:
    if projection is not None:
        student = F.linear(student, projection)
    elif student.shape[-1] != teacher.shape[-1]:
        raise ValueError("widths")
    squares = F.mse_loss(student, teacher.detach(), reduction="none")
    return _weighted(squares.mean(dim=2), real)


def _weighted(values: Tensor, real: Tensor | None) -> Tensor:
    weights = torch.ones_like(values) if real is None else real.to(values.dtype)
    if weights.sum() == 0:
        raise ValueError("no token")
    return (values * weights).sum() / weights.sum()


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
    for parameter in student.parameters():
        parameter.requires_grad = True
    both, losses = optimizers(student, learning_rate), []
    for step in range(steps):
        for optimizer in both:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * (steps - step) / steps
            optimizer.zero_grad()
        tokens, real = batches(step)
        with torch.inference_mode():
            theirs = teacher.hidden(tokens)
            logits = teacher.logits(theirs)
        ours = student.hidden(tokens)
        loss = kd_loss(student.logits(ours), logits.clone(), temperature, real)
        if hidden_weight != 0:
            loss = loss + hidden_weight * hidden_loss(ours, theirs.clone(), real=real)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        for optimizer in both:
            optimizer.step()
        losses.append(loss.item())
        if on_step:
            on_step(step, losses[-1])
    return losses
