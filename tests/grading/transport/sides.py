"""Work done on whichever side holds the submission: the same code in one process and in a child."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from assignment.provided.lab.counter import CostCounter, counting_suspended


def observe(target: Callable, args: Sequence, kwargs: dict) -> tuple:
    """Call `target` under the cost counter: (value, cost, names of tensor arguments it changed)."""
    tensors = {str(i): a for i, a in enumerate(args)} | kwargs
    before = {n: t.clone() for n, t in tensors.items() if isinstance(t, Tensor)}
    with CostCounter() as counter:
        value = target(*args, **kwargs)
    changed = [name for name, copy in before.items() if not _same_bits(copy, tensors[name])]
    return value, counter.cost, changed


def grad_of(target: Callable, inputs: Sequence[Tensor], cotangent: Tensor | None) -> tuple:
    """(value, [∂ Σ value·cotangent / ∂ input for each input]); a cotangent of None means ones."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    value = target(*leaves)
    weights = torch.ones_like(value) if cotangent is None else cotangent
    grads = torch.autograd.grad(value, leaves, weights, allow_unused=True)
    zeros = [torch.zeros_like(leaf) for leaf in leaves]
    return value.detach(), [z if g is None else g for g, z in zip(grads, zeros, strict=True)]


def uncounted(function: Callable) -> Callable:
    """`function` as it is, but what it does is not counted: it belongs to the test."""

    @functools.wraps(function, updated=())
    def call(*args, **kwargs):
        with counting_suspended():
            return function(*args, **kwargs)

    return call


def _same_bits(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (left, right)))
