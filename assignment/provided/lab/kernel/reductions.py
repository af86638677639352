"""Reductions and scans of bfloat16: computed in float32, and rounded once."""

from __future__ import annotations

import triton.language as tl
from triton.runtime import interpreter

from .bfloat16 import is_bfloat16, rounded, widened


class _Wide:
    """Mixed into Triton's own: bfloat16 goes in as float32, and comes out rounded."""

    def apply_impl(self, inputs):
        interpreter.interpreter_builder.count_vector(*(x.handle for x in inputs))
        narrow = [is_bfloat16(x.handle) for x in inputs]
        if not any(narrow):
            return super().apply_impl(inputs)
        wide = tuple(_as_tensor(widened(x.handle), x.shape) for x in inputs)
        results = super().apply_impl(wide)
        results = results if isinstance(results, list | tuple) else [results]
        return [
            _as_tensor(rounded(x.handle), x.shape) if was_narrow else x
            for x, was_narrow in zip(results, narrow, strict=False)
        ]


class Reduce(_Wide, interpreter.ReduceOps):
    """`tl.sum`, `tl.max` and the like."""


class Scan(_Wide, interpreter.ScanOps):
    """`tl.cumsum` and the like."""


def _as_tensor(handle, shape) -> tl.tensor:
    kind = handle.dtype.scalar
    return tl.core.tensor(handle, tl.block_type(kind, list(shape)) if len(shape) else kind)
