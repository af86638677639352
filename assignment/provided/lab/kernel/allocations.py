"""Which memory torch has allocated, and nobody has written."""

from __future__ import annotations

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

EMPTY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
ALIASING = {"set_"}  # changes a tensor, and no memory: it only points somewhere else afterwards


class Fresh:
    """Storages that hold nothing yet. They are kept, so that no other gets their address."""

    def __init__(self) -> None:
        self._fresh: dict[int, Tensor] = {}

    def is_fresh(self, tensor: Tensor) -> bool:
        return _address(tensor) in self._fresh

    def allocated(self, tensor: Tensor) -> None:
        self._fresh[_address(tensor)] = tensor

    def filled(self, tensor: Tensor) -> None:
        self._fresh.pop(_address(tensor), None)


class Allocations(TorchDispatchMode):
    """Inside, `fresh` learns what torch allocates and what it fills."""

    def __init__(self, fresh: Fresh):
        super().__init__()
        self._fresh = fresh

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler at the first operator, which takes seconds

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in EMPTY:
            self._fresh.allocated(result)
        elif function._schema.is_mutable and name not in ALIASING:
            for parameter, value in zip(function._schema.arguments, args, strict=False):
                is_written = parameter.alias_info is not None and parameter.alias_info.is_write
                if is_written and isinstance(value, Tensor):
                    self._fresh.filled(value)
        return result


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
