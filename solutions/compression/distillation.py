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
    """τ² · mean over real tokens of KL(p ‖ q) = Σ_v p_v (log p_v − log q_v), from logits.

    p = softmax(teacher / τ), q = softmax(student / τ). The sum is over the whole vocabulary, the
    mean over tokens only (`reduction="mean"` of torch divides by V, too). No gradient goes to the
    teacher. The student's is τ · (q − p) a token, and as q − p shrinks like 1/τ, τ² keeps its size.

    A teacher may hold a token impossible (a logit of −∞, as for ids that pad the vocabulary), and
    so may the student: with p_v = 0 the token adds 0, and neither value nor gradient is NaN. Logits
    may be far apart, so take logarithms before rounding can make a probability 0.

    Args:
        student, teacher: logits, not probabilities.
        temperature: τ. Above 1 it weighs the less probable tokens more.
        real: False where a token is padding, whose logits may be any finite numbers. Default: all
            count.

    Raises:
        ValueError: temperature is not above 0, or no token counts.

    A teacher's logits log 3 and 0, a student's 0 and 0, at τ = 1: ¾ log 1.5 + ¼ log 0.5 = 0.131.
    About 10 lines.
    """
    # BEGIN SOLUTION
    if not temperature > 0:
        raise ValueError(f"temperature: expected more than 0, got {temperature}")
    log_p = (teacher.detach() / temperature).log_softmax(dim=-1)
    log_q = (student / temperature).log_softmax(dim=-1)
    p = log_p.exp()
    terms = torch.where(p > 0, p * (log_p - log_q), 0)  # 0 · ∞ would be NaN
    return temperature**2 * _mean_over(terms.sum(dim=-1), real)
    # END SOLUTION


def hidden_loss(
    student: Float[Tensor, "B T E"],
    teacher: Float[Tensor, "B T D"],
    projection: Float[Tensor, "D E"] | None = None,
    real: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, ""]:
    """Mean over real tokens and the D channels of (projection · student − teacher)².

    For a student that is to think as the teacher does, not only to answer so. `projection` brings a
    narrower student to the teacher's width, and may be trained with it; without one the widths must
    be equal. No gradient goes to the teacher.

    Args:
        real: as in `kd_loss`.

    Raises:
        ValueError: the widths differ and there is no projection, or no token counts.

    About 6 lines.
    """
    # BEGIN SOLUTION
    projected = student if projection is None else student @ projection.T
    if projected.shape != teacher.shape:
        raise ValueError(
            f"student: {projected.shape[-1]} channels, and no projection to the teacher's "
            f"{teacher.shape[-1]}"
        )
    return _mean_over((projected - teacher.detach()).square().mean(dim=-1), real)
    # END SOLUTION


# BEGIN SOLUTION
def _mean_over(of_tokens: Float[Tensor, "B T"], real: Bool[Tensor, "B T"] | None) -> Tensor:
    counted = of_tokens.flatten() if real is None else of_tokens[real]
    if not counted.numel():
        raise ValueError("real: expected at least one token that counts")
    return counted.mean()


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
    `hidden_loss` of what the last blocks return (`Llama.hidden`; `Llama.logits` goes on from
    there). The loop is `train` without a warm-up, with `optimizers`. The teacher runs under
    `torch.no_grad` and is not changed. All of the student is trained, also where its parameters do
    not require gradients, as those of a model that was loaded or pruned.

    Args:
        batches: batches(step) -> tokens, and where they are real, for step 0 … steps − 1.
        steps: how many updates.
        hidden_weight: with 0 the widths may differ.
        on_step: on_step(step, loss) is called after each update, such as `training.progress` gives.

    Raises:
        ValueError: as the two losses.

    About 10 lines.
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
