"""The cost of one call of one ATen operator, the instructions that all torch code comes down to."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from .cost import Cost
from .flops import count_flops
from .traffic import GATHERING, OVERWRITING, SCATTERING, scatter_cost, total_bytes

# These touch no element, though their schema does not call them views.
FREE = {
    "_unsafe_view", "_reshape_alias", "empty", "empty_like", "empty_strided", "empty_permuted",
    "new_empty", "new_empty_strided", "resize", "set", "_fused_sdp_choice", "is_same_size",
}  # fmt: skip


def cost_of(operator: torch._ops.OpOverload, args: tuple, kwargs: dict, result: object) -> Cost:
    """FLOPs and bytes of the call operator(*args, **kwargs), which has just returned `result`."""
    signature = _signature(operator)
    if signature.is_free:
        return Cost()
    given = dict(zip(signature.arguments, args, strict=False)) | kwargs
    if signature.is_in_place and signature.name in SCATTERING:
        return scatter_cost(signature.name, given)

    operands = list(_tensors(given.values()))
    targets = list(_tensors(given.get(name) for name in signature.targets))
    made = list(_tensors([result])) if signature.makes_tensors else []
    return Cost(
        count_flops(signature.name, given, operands, made or targets),
        total_bytes(_read(signature, given, made)),
        total_bytes(made + targets),
    )


def _read(signature: _Signature, given: dict, made: list[Tensor]) -> list[Tensor]:
    if signature.name in GATHERING:  # of the source, as many elements as come out
        return [*made, *_tensors([given[GATHERING[signature.name]]])]
    if signature.takes_shape_only:
        return []
    not_read = set(signature.not_read)
    if given.get("beta") == 0:  # beta · self + product
        not_read.add("self")
    return list(_tensors(value for name, value in given.items() if name not in not_read))


class _Signature:
    """What an operator's schema says, worked out once for each operator."""

    def __init__(self, operator: torch._ops.OpOverload):
        schema = operator._schema
        name = schema.name.split("::")[1]
        self.name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        self.arguments = [argument.name for argument in schema.arguments]
        written = [a for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        self.targets = [argument.name for argument in written]
        self.is_in_place = "self" in self.targets
        self.makes_tensors = any(returned.alias_info is None for returned in schema.returns)
        self.not_read = {argument.name for argument in written if argument.kwarg_only}  # out=
        if self.is_in_place and self.name in OVERWRITING:
            self.not_read.add("self")
        self.takes_shape_only = self.name.startswith("new_") or self.name.endswith("_like")
        self.is_free = (
            operator.is_view or self.name in FREE or torch.Tag.inplace_view in operator.tags
        )


_signature = functools.cache(_Signature)


def _tensors(values: Iterable) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
