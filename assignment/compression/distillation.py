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
    raise NotImplementedError


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
    raise NotImplementedError


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

    raise NotImplementedError
