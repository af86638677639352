"""Distillation: a small model learns from a large one's probabilities, not from single tokens.

Hinton, Vinyals, Dean, 2015, arXiv:1503.02531. As the second half of pruning: Muralidharan et al.,
2024, arXiv:2407.14679.
Axes: B texts, T tokens, V vocabulary, D channels of the teacher, E of the student.
"""

from collections.abc import Callable

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
    """T² · mean over real tokens of KL(p ‖ q) = Σ_v p_v (log p_v − log q_v), from logits.

    p = softmax(teacher / T), q = softmax(student / T). The sum is over the whole vocabulary; the
    mean is over tokens only. T² keeps the gradient's size: by itself it falls as 1/T². A probability
    of 0 of the teacher adds nothing. No gradient goes to the teacher.

    Args:
        real: False where a token is padding. Default: all count.

    Raises:
        ValueError: the shapes do not fit, temperature is not above 0, or no token counts.
    """
    # BEGIN SOLUTION
    if student.shape != teacher.shape:
        raise ValueError(
            f"student, teacher: expected logits of one shape, got {list(student.shape)} and "
            f"{list(teacher.shape)}"
        )
    if not temperature > 0:
        raise ValueError(f"temperature: expected more than 0, got {temperature}")
    log_p = (teacher.detach() / temperature).log_softmax(dim=-1)
    log_q = (student / temperature).log_softmax(dim=-1)
    # −∞ − −∞ and 0 · ∞ are no numbers, and their gradients neither.
    possible = log_p > -torch.inf
    terms = torch.where(possible, log_p.exp() * (log_p - log_q), 0)
    return temperature**2 * _mean_over(terms.sum(dim=-1), real)
    # END SOLUTION


def hidden_loss(
    student: Float[Tensor, "B T E"],
    teacher: Float[Tensor, "B T D"],
    projection: Float[Tensor, "D E"] | None = None,
    real: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, ""]:
    """Mean over real tokens and the D channels of (projection · student − teacher)².

    Without a projection the widths must be equal. No gradient goes to the teacher.

    Raises:
        ValueError: the shapes do not fit, or no token counts.
    """
    # BEGIN SOLUTION
    projected = student if projection is None else student @ projection.T
    if projected.shape != teacher.shape:
        raise ValueError(
            f"student: expected {list(teacher.shape)} as the teacher, got {list(projected.shape)}"
        )
    return _mean_over((projected - teacher.detach()).square().mean(dim=-1), real)
    # END SOLUTION


# BEGIN SOLUTION
def _mean_over(of_tokens: Float[Tensor, "B T"], real: Bool[Tensor, "B T"] | None) -> Tensor:
    if real is not None:
        if real.shape != of_tokens.shape:
            raise ValueError(f"real: expected {list(of_tokens.shape)}, got {list(real.shape)}")
        of_tokens = of_tokens[real]
    if not of_tokens.numel():
        raise ValueError("real: expected at least one token that counts")
    return of_tokens.mean()


# END SOLUTION


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
    """Train the student, in place, on the teacher's probabilities; the loss of every step.

    The loss of a step is `kd_loss` of the logits of batches(step), plus hidden_weight times
    `hidden_loss` of what the last blocks return (`Llama.hidden`), which needs equal widths. The
    teacher runs without gradients and is not changed. The loop is `train`, with `optimizers`.

    Args:
        batches: batches(step) -> tokens, and where they are real.
        on_step: on_step(step, loss) after each update, such as `training.progress` gives.
    """
    # BEGIN SOLUTION
    def loss(step: int) -> Tensor:
        tokens, real = batches(step)
        with torch.no_grad():
            taught = teacher.hidden(tokens)
            taught_logits = teacher.logits(taught)
        learnt = student.hidden(tokens)
        value = kd_loss(student.logits(learnt), taught_logits, temperature, real)
        if hidden_weight:
            value = value + hidden_weight * hidden_loss(learnt, taught, None, real)
        return value

    student.requires_grad_()
    return train(student, loss, optimizers(student, learning_rate), steps, on_step=on_step)
    # END SOLUTION
