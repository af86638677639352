"""Triton's interpreter with a meter in it: the operations that a kernel is made of, one by one."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, TensorHandle

from .bfloat16 import NAN, is_bfloat16, rounded, widened
from .launch import Launch
from .memory import Access, Argument
from .narrow import BITS, GROWING, wrapped
from .tf32 import TF32, is_tf32, truncated

OWNER = "owner"  # of a pointer's attributes: the Argument it was made from
GARBAGE = 0x5A  # each byte of an integer that was masked off and has no `other`


class UnknownPointer(ValueError):
    """A pointer that was not made from an argument."""


class MeteredBuilder(InterpreterBuilder):
    """What `tl` calls while a program runs.

    It keeps track of whose memory a pointer points to, asks `access` about every load and store,
    counts FLOPs into `launch`, repairs bfloat16, and multiplies in TF32 where a GPU does. Its int32
    has `integer_bits`.
    """

    def __init__(self, launch: Launch, access: Access, integer_bits: int = BITS):
        super().__init__()
        # Without checks for the overflow of integers, which double the time of an address.
        self.options = InterpreterOptions(sanitize_overflow=False)
        self.launch, self.access, self._integer_bits = launch, access, integer_bits
        self._owner: Argument | None = None

    # --- memory -----------------------------------------------------------------------------------

    def create_masked_load(self, ptrs, mask, other, *hints, **named):
        kind = ptrs.get_element_ty()
        allowed = self.access.load(self._owner_of(ptrs), ptrs.data, _array(mask), _width(kind))
        if other is None:
            other = _undefined(ptrs.data.shape, kind)
        allowed = TensorHandle(allowed, tl.int1)
        return super().create_masked_load(ptrs, allowed, other, *hints, **named)

    def create_masked_store(self, ptrs, value, mask, *hints):
        width = _width(ptrs.get_element_ty())
        allowed = self.access.store(self._owner_of(ptrs), ptrs.data, _array(mask), width)
        return super().create_masked_store(ptrs, value, TensorHandle(allowed, tl.int1), *hints)

    def create_atomic_rmw(self, op, ptr, value, mask, *rest):
        width = _width(ptr.get_element_ty())
        allowed = self.access.atomic(self._owner_of(ptr), ptr.data, _array(mask), width)
        return super().create_atomic_rmw(op, ptr, value, TensorHandle(allowed, tl.int1), *rest)

    def create_atomic_cas(self, ptr, *rest):
        width, everywhere = _width(ptr.get_element_ty()), np.ones_like(ptr.data, bool)
        self.access.atomic(self._owner_of(ptr), ptr.data, everywhere, width)
        return super().create_atomic_cas(ptr, *rest)

    # --- whose memory -----------------------------------------------------------------------------

    def create_tensor_pointer_load(self, ptr, *rest):
        with self._of(ptr.base):
            return super().create_tensor_pointer_load(ptr, *rest)

    def create_tensor_pointer_store(self, ptr, *rest):
        with self._of(ptr.base):
            return super().create_tensor_pointer_store(ptr, *rest)

    def create_descriptor_load(self, desc, *rest, **named):
        with self._of(desc.base):
            return super().create_descriptor_load(desc, *rest, **named)

    def create_descriptor_store(self, desc, *rest):
        with self._of(desc.base):
            return super().create_descriptor_store(desc, *rest)

    def create_addptr(self, ptr, offset):
        return _owned_as(ptr, super().create_addptr(ptr, offset))

    def create_splat(self, shape, value):
        return _owned_as(value, super().create_splat(shape, value))

    def create_broadcast(self, value, shape):
        return _owned_as(value, super().create_broadcast(value, shape))

    def create_expand_dims(self, value, axis):
        return _owned_as(value, super().create_expand_dims(value, axis))

    def create_reshape(self, value, *rest):
        return _owned_as(value, super().create_reshape(value, *rest))

    def create_trans(self, value, *rest):
        return _owned_as(value, super().create_trans(value, *rest))

    def create_bitcast(self, value, *rest):
        return _owned_as(value, super().create_bitcast(value, *rest))

    def create_select(self, condition, left, right):
        if left.attr.get(OWNER) is not right.attr.get(OWNER):
            raise UnknownPointer("a tl.where between pointers to two arguments cannot be followed")
        return _owned_as(left, super().create_select(condition, left, right))

    def _owner_of(self, pointers: TensorHandle) -> Argument:
        owner = pointers.attr.get(OWNER, self._owner)
        if owner is None:
            raise UnknownPointer("a pointer that was not made from an argument cannot be followed")
        return owner

    @contextmanager
    def _of(self, base: TensorHandle):
        self._owner = base.attr.get(OWNER)
        try:
            yield
        finally:
            self._owner = None

    # --- arithmetic -------------------------------------------------------------------------------

    def binary_op(self, left, right, op):
        self.count_vector(left, right)
        result = self._exact(super().binary_op, left, right, op)
        if op in GROWING:
            return wrapped(result, self._integer_bits)
        return _as_bool(result) if result.data.dtype == bool else result

    def unary_op(self, value, op):
        self.count_vector(value)
        return self._exact(super().unary_op, value, op)

    def create_maxnumf(self, left, right):
        """`tl.maximum`, unless it is told to hand on NaN: of a number and NaN, the number."""
        return self.binary_op(left, right, np.fmax)

    def create_minnumf(self, left, right):
        return self.binary_op(left, right, np.fmin)

    def create_fma(self, x, y, z):
        self.count_vector(x, y, z)
        self.count_vector(x, y, z)
        return self._exact(super().create_fma, x, y, z)

    def create_rsqrt(self, value):
        self.count_vector(value)
        return self._exact(super().create_rsqrt, value)

    def create_erf(self, value):
        self.count_vector(value)
        return self._exact(super().create_erf, value)

    def create_clampf(self, value, low, high, propagate):
        self.count_vector(value)
        return self._exact(super().create_clampf, value, low, high, propagate)

    def get_bf16(self, value):
        """A constant, which Triton's has in all dtypes but this."""
        return rounded(TensorHandle(np.array([value], np.float32), tl.float32))

    def cast_impl(self, source, kind):
        return wrapped(self._cast(super().cast_impl, source, kind), self._integer_bits)

    def create_fp_to_fp(self, source, kind, rounding):
        return self._cast(super().create_fp_to_fp, source, kind, rounding)

    def create_dot(self, a, b, d, precision, *rest):
        in_tf32 = is_tf32(a, precision)
        name = TF32 if in_tf32 else a.dtype.scalar.name
        self._count_dot(name, 2 * a.data.size * b.data.shape[-1])
        if in_tf32:
            a, b = truncated(a), truncated(b)
        if a.data.dtype.kind in "iu" and not is_bfloat16(a):
            return _integer_dot(a, b, d)
        if is_bfloat16(d):
            wide = super().create_dot(widened(a), widened(b), widened(d), precision, *rest)
            return rounded(wide)
        return super().create_dot(widened(a), widened(b), d, precision, *rest)

    def _count_dot(self, name: str, flops: int) -> None:
        launch, program = self.launch, self.access.index
        launch.dot_flops[name] = launch.dot_flops.get(name, 0) + flops
        of_programs = launch.program_dot_flops.setdefault(name, [0] * launch.programs)
        of_programs[program] += flops
        launch.program_flops[program] += flops

    def count_vector(self, *values: TensorHandle) -> None:
        """One operation for each element of what is computed."""
        if values[0].dtype.scalar.is_floating():
            count = max(value.data.size for value in values)
            self.launch.vector_flops += count
            self.launch.program_flops[self.access.index] += count

    @staticmethod
    def _exact(operation, *operands):
        """The operation in float32 where an operand is a bfloat16, and its result rounded."""
        if not any(map(is_bfloat16, operands)):
            return operation(*operands)
        wide = [widened(x) if isinstance(x, TensorHandle) else x for x in operands]
        result = operation(*wide)
        return rounded(result) if result.data.dtype == np.float32 else result

    @staticmethod
    def _cast(operation, source, kind, *rest):
        if kind.scalar == tl.bfloat16 and not is_bfloat16(source):
            return rounded(operation(source, tl.float32, *rest))
        if is_bfloat16(source) and kind.scalar != tl.bfloat16:
            wide = widened(source)
            return wide if kind.scalar == tl.float32 else operation(wide, kind, *rest)
        return operation(source, kind, *rest)


def _owned_as(source: TensorHandle, result: TensorHandle) -> TensorHandle:
    if OWNER in source.attr:
        result.attr[OWNER] = source.attr[OWNER]
    return result


def _array(mask) -> np.ndarray:
    return mask.data if isinstance(mask, TensorHandle) else mask


def _as_bool(result: TensorHandle) -> TensorHandle:
    """Of a comparison: Triton gives it the operands' dtype here, and a scalar's result would become
    a tile of their numbers."""
    return TensorHandle(result.data, tl.int1)


def _width(kind) -> int:
    return max(1, kind.primitive_bitwidth // 8)


def _undefined(shape: tuple[int, ...], kind) -> TensorHandle:
    """What a GPU may give for elements that are masked off and have no `other`: not zero."""
    dtype = triton_interpreter._get_np_dtype(kind)
    if kind == tl.bfloat16:
        return TensorHandle(np.full(shape, NAN, dtype), kind)
    if dtype.kind == "f":
        return TensorHandle(np.full(shape, np.nan, dtype), kind)
    if dtype.kind == "b":
        return TensorHandle(np.ones(shape, dtype), kind)
    return TensorHandle(
        np.full((*shape, dtype.itemsize), GARBAGE, np.uint8).view(dtype)[..., 0], kind
    )


def _integer_dot(a: TensorHandle, b: TensorHandle, d: TensorHandle) -> TensorHandle:
    """Exact, as float64 holds every such sum; products of integers are slow in NumPy."""
    product = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64))
    return TensorHandle(product.astype(d.data.dtype) + d.data, d.dtype.scalar)
