"""What distillation's answers are checked against: token by token, in float64."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from assignment.provided.models import Llama
from assignment.provided.models.training import optimizers, train


def softmax(logits: list[float], temperature: float) -> tuple[list[float], list[float]]:
    """Probabilities and their logarithms, which are −∞ where the logit is."""
    most = max(logits)
    scaled = [(logit - most) / temperature for logit in logits]
    total = math.log(math.fsum(map(math.exp, scaled)))
    logs = [value - total for value in scaled]
    return [math.exp(log) for log in logs], logs


def kd_loss(
    student: Tensor, teacher: Tensor, temperature: float = 1.0, real: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient with respect to the student's logits."""
    places = places_of(student, real)
    gradient, terms = torch.zeros(student.shape, dtype=torch.float64), []
    for place in places:
        p, log_p = softmax(teacher[place].tolist(), temperature)
        q, log_q = softmax(student[place].tolist(), temperature)
        rows = zip(p, log_p, log_q, strict=True)
        terms += [mass * (ours - theirs) for mass, ours, theirs in rows if mass > 0]
        difference = torch.tensor(q, dtype=torch.float64) - torch.tensor(p, dtype=torch.float64)
        gradient[place] = temperature * difference / len(places)
    value = temperature**2 * math.fsum(terms) / len(places)
    return torch.tensor(value, dtype=torch.float64), gradient


def rounding_of(
    student: Tensor, teacher: Tensor, temperature: float = 1.0, real: Tensor | None = None
) -> float:
    """What float32 may cost the loss, however small that is: it is a sum of differences of
    logarithms, each of which is rounded like the logits, times probabilities, which are as rough as
    their own logarithms."""
    eps, costs = torch.finfo(torch.float32).eps, []
    for b, t in places_of(student, real):
        ours, theirs = (x[b, t][x[b, t].isfinite()].abs().max().item() for x in (student, teacher))
        one = slice(b, b + 1), slice(t, t + 1)
        loss = kd_loss(student[one], teacher[one], temperature)[0].item()
        costs.append(temperature * (ours + theirs) + theirs / temperature * loss)
    return eps * sum(costs) / len(costs)


def hidden_loss(
    student: Tensor, teacher: Tensor, projection: Tensor, real: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, and its gradients with respect to the student's states and the projection."""
    places, width = places_of(student, real), teacher.shape[-1]
    student, teacher, projection = student.double(), teacher.double(), projection.double()
    total = torch.zeros((), dtype=torch.float64)
    of_student, of_projection = torch.zeros_like(student), torch.zeros_like(projection)
    for place in places:
        error = projection @ student[place] - teacher[place]
        total += error.dot(error) / (width * len(places))
        slope = 2 * error / (width * len(places))
        of_student[place] = projection.T @ slope
        of_projection += torch.outer(slope, student[place])
    return total, of_student, of_projection


def places_of(tensor: Tensor, real: Tensor | None) -> list[tuple[int, int]]:
    """(text, token) of all that count."""
    rows, columns = tensor.shape[:2]
    everywhere = [(b, t) for b in range(rows) for t in range(columns)]
    return [place for place in everywhere if real is None or real[place]]


def trained(
    student: Llama,
    teacher: Llama,
    batches: list[tuple[Tensor, Tensor]],
    learning_rate: float,
    temperature: float = 1.0,
    hidden_weight: float = 0.0,
) -> list[float]:
    """Train the student with the course's loop: the losses. KL as cross-entropy less entropy."""

    def loss(step: int) -> Tensor:
        tokens, real = batches[step]
        with torch.no_grad():
            hidden = teacher.hidden(tokens)[real]
            p = (teacher(tokens)[real] / temperature).softmax(dim=-1)
        own = student.hidden(tokens)[real]
        entropy = torch.special.entr(p).sum(dim=-1).mean()
        value = F.cross_entropy(student(tokens)[real] / temperature, p) - entropy
        value = temperature**2 * value
        return value + hidden_weight * F.mse_loss(own, hidden) if hidden_weight else value

    return train(student, loss, optimizers(student, learning_rate), len(batches))
