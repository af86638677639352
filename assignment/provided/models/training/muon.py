"""Muon, an optimizer for matrices: of a momentum it keeps the directions and evens the lengths."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer


def optimizers(model: nn.Module, learning_rate: float) -> list[Optimizer]:
    """Muon for the matrices of linear layers; AdamW for embeddings, norms and an untied `head`.

    Muon's updates are scaled to the size of AdamW's, so one learning rate does for both. Only the
    matrices decay. Parameters that need no gradient are left out.

    Raises:
        ValueError: if no parameter needs a gradient.

    Sources: Muon, https://kellerjordan.github.io/posts/muon/; its scale,
    https://arxiv.org/abs/2502.16982.
    """
    matrices = [
        layer.weight
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and name != "head" and layer.weight.requires_grad
    ]
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("model: none of its parameters needs a gradient; requires_grad_() first")
    taken = {id(matrix) for matrix in matrices}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
    # Groups, because a bare list must not be empty.
    return [
        Muon([{"params": matrices}], learning_rate),
        AdamW([{"params": others}], learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


class Muon(Optimizer):
    """update = 0.2 · √max(rows, columns) · U Vᵀ, where U S Vᵀ = momentum.

    The factor gives updates the size that AdamW's have, so that one learning rate does for both.
    torch.optim.Muon does the same in bfloat16: many times slower on a CPU without such arithmetic.

    Sources: https://kellerjordan.github.io/posts/muon/; the factor,
    https://arxiv.org/abs/2502.16982.

    Args:
        params: matrices, or groups of them.
        lr: learning rate.
        momentum: share of the past in the mean of gradients.
        weight_decay: share of a weight that is taken off a step, times lr.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
    ):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["mean"] = torch.zeros_like(matrix)
                mean = state["mean"].lerp_(matrix.grad, 1 - momentum)
                update = orthogonal(matrix.grad.lerp(mean, momentum))  # Nesterov's look ahead
                matrix.mul_(1 - lr * group["weight_decay"])
                matrix.add_(update, alpha=-lr * 0.2 * max(matrix.shape) ** 0.5)


def orthogonal(matrix: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """About U Vᵀ of U S Vᵀ = matrix: five steps of Newton–Schulz bring the singular values that are
    not tiny to about 0.7 to 1.2, which is near enough and costs no decomposition."""
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide / wide.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x
