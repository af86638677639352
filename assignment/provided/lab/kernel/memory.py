"""The memory that a launch may touch: whose it is, what was written, and by which program."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from .launch import Launch, Problem, Traffic
from .places import index_of

SECTOR = 32  # bytes, the unit in which a GPU moves memory
NOBODY, SEVERAL = 0, -1  # in place of a program's number, which counts from 1


class Storage:
    """The bytes behind one or more tensors.

    empty: which bytes hold nothing. writer, reader: the last program of this launch to write or
    read each byte, or SEVERAL. Zeros cost memory only where something else is written among them.
    """

    def __init__(self, tensor: Tensor, is_fresh: bool):
        storage = tensor.untyped_storage()
        self.base, self.size = storage.data_ptr(), storage.nbytes()
        self.empty = (np.ones if is_fresh else np.zeros)(self.size, bool)

    def begin_launch(self, programs: int) -> None:
        number = np.min_scalar_type(-programs - 1)
        self.writer, self.reader = (np.zeros(self.size, number) for _ in range(2))

    def filled(self) -> None:
        """By torch."""
        self.empty = np.zeros(self.size, bool)


class Argument:
    """A tensor that a kernel has a pointer to: all bytes from its first element to its last."""

    def __init__(self, name: str, tensor: Tensor, storage: Storage):
        self.name, self.storage = name, storage
        self.shape, self.strides = tuple(tensor.shape), tensor.stride()
        self.element_size = tensor.element_size()
        self.first = tensor.data_ptr()
        span = sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )
        self.size = (span + 1) * tensor.element_size() if tensor.numel() else 0
        self.seen = {kind: np.zeros(self.size, bool) for kind in ("loaded", "stored")}

    def index_of(self, offset: int) -> tuple[int, ...] | None:
        """Which element begins at this byte, if one does."""
        elements, within = divmod(offset, self.element_size)
        return index_of(elements, self.shape, self.strides) if within == 0 else None

    def tell_unique(self, launch: Launch) -> None:
        """At the end of a launch: how many different bytes it touched."""
        for kind, seen in self.seen.items():
            if self.name in getattr(launch, kind):
                getattr(launch, kind)[self.name].unique = int(seen.sum())


class Access:
    """Books the loads and stores of the program that is running."""

    def __init__(self, launch: Launch):
        self.launch = launch
        self.program, self.index = (0, 0, 0), 0

    @property
    def _number(self) -> int:
        return self.index + 1

    def load(self, argument: Argument, addresses: np.ndarray, mask: np.ndarray, width: int):
        """Returns the mask without the elements that are out of bounds."""
        inside, offsets = self._in_bounds("load", argument, addresses, mask, width)
        self._count("loaded", argument, offsets, width)
        where = self._bytes(argument, offsets, width)
        storage = argument.storage
        self._report("unwritten read", argument, offsets, storage.empty[where])
        self._report_race(argument, offsets, storage.writer[where])
        self._mark(storage.reader, where)
        return inside

    def store(self, argument: Argument, addresses: np.ndarray, mask: np.ndarray, width: int):
        """As `load`."""
        inside, offsets = self._in_bounds("store", argument, addresses, mask, width)
        self._count("stored", argument, offsets, width)
        where = self._bytes(argument, offsets, width)
        storage = argument.storage
        storage.empty[where] = False
        self._report_race(argument, offsets, storage.writer[where])
        self._report_race(argument, offsets, storage.reader[where])
        self._mark(storage.writer, where)
        return inside

    def atomic(self, argument: Argument, addresses: np.ndarray, mask: np.ndarray, width: int):
        """As `load` and `store`, but programs may meet here."""
        inside, offsets = self._in_bounds("store", argument, addresses, mask, width)
        for kind in ("loaded", "stored"):
            self._count(kind, argument, offsets, width)
        where = self._bytes(argument, offsets, width)
        self._report("unwritten read", argument, offsets, argument.storage.empty[where])
        argument.storage.empty[where] = False
        return inside

    def _in_bounds(
        self, kind: str, argument: Argument, addresses: np.ndarray, mask: np.ndarray, width: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(mask without what is outside, distinct offsets in bytes of what is inside)."""
        mask = np.broadcast_to(mask, addresses.shape)
        offsets = (addresses - np.uint64(argument.first)).astype(np.int64)
        outside = mask & ((offsets < 0) | (offsets + width > argument.size))
        if outside.any():
            self._add(f"{kind} out of bounds", argument, offsets[outside])
            mask = mask & ~outside
        offsets = offsets[mask]
        if offsets.size > 1 and not (offsets[1:] > offsets[:-1]).all():
            offsets = np.unique(offsets)
        return mask, offsets

    def _count(self, kind: str, argument: Argument, offsets: np.ndarray, width: int) -> None:
        if not offsets.size:
            return
        traffic = getattr(self.launch, kind).setdefault(argument.name, Traffic())
        traffic.operations += 1
        traffic.requested += offsets.size * width
        # A GPU's storages begin at sectors, wherever this machine has them.
        sectors = (offsets + argument.first - argument.storage.base) // SECTOR
        traffic.sectors += 1 + int(np.count_nonzero(np.diff(sectors)))
        self.launch.program_bytes[self.index] += offsets.size * width
        argument.seen[kind][_each_byte(offsets, width)] = True

    def _bytes(self, argument: Argument, offsets: np.ndarray, width: int) -> np.ndarray:
        """Indices into the storage [elements width]."""
        return _each_byte(offsets + (argument.first - argument.storage.base), width)

    def _mark(self, by_program: np.ndarray, where: np.ndarray) -> None:
        before = by_program[where]
        alone = (before == NOBODY) | (before == self._number)
        by_program[where] = np.where(alone, self._number, SEVERAL)

    def _report_race(self, argument: Argument, offsets: np.ndarray, by: np.ndarray) -> None:
        """`by`: the last program at each byte [elements width]."""
        self._report("race", argument, offsets, (by != NOBODY) & (by != self._number))

    def _report(self, kind: str, argument: Argument, offsets: np.ndarray, bad: np.ndarray) -> None:
        """`bad` is by byte [elements width]."""
        if bad.any():
            self._add(kind, argument, offsets[bad.any(axis=1)])

    def _add(self, kind: str, argument: Argument, offsets: np.ndarray) -> None:
        first, count = int(offsets.min()), int(offsets.size)
        self.launch.problems.append(
            Problem(
                kind, argument.name, first, count, self.program,
                argument.index_of(first), argument.shape,
            )
        )  # fmt: skip


def _each_byte(offsets: np.ndarray, width: int) -> np.ndarray:
    return offsets[:, None] + np.arange(width)
