"""How much memory of tensors an object keeps alive."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable
from types import FrameType, FunctionType, ModuleType

import numpy as np
import torch
from torch import Tensor

ELSEWHERE = (type, ModuleType, FrameType)  # what these lead to is not the object's own


def kept_bytes(holder: object) -> int:
    """Bytes of the storages of all tensors, and of all arrays, that can be reached from `holder`.

    A storage counts once and whole, however small the views of it are. What a function reads of its
    module does not count, what it closes over does.
    """
    storages: dict[int, int] = {}
    seen: dict[int, object] = {}  # holds them, so that no id is given twice
    waiting = [holder]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, ELSEWHERE):
            continue
        seen[id(value)] = value
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, np.ndarray) and value.base is None:
            storages[value.ctypes.data] = value.nbytes
        waiting += _inside(value)
    return sum(storages.values())


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, Tensor):
        return [value.grad_fn, value.grad if value.is_leaf else None, vars(value)]
    if isinstance(value, torch.autograd.graph.Node):
        before = [node for node, _ in value.next_functions]
        return [*before, getattr(value, "variable", None), *_saved(value)]
    if isinstance(value, np.ndarray):
        return [value.base]
    if isinstance(value, FunctionType):
        return [value.__closure__, value.__defaults__, value.__kwdefaults__]
    return gc.get_referents(value)


def _saved(node: torch.autograd.graph.Node) -> list[object]:
    """What it keeps for its gradient, until that was computed."""
    found = []
    for name in dir(node):
        with contextlib.suppress(RuntimeError):  # it was, and all is gone
            found += [getattr(node, name)] if name.startswith("_saved_") else []
    return found
