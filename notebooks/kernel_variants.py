"""Many versions of one `paged_attention`, and what the lab's time model says of each.

What makes a version: tokens of a tile, splits, warps of a program. The splits are an argument; the
warps are given to every launch; the tile can be varied where the module has a number named TILE, to
which one named TILE_BYTES may set a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from types import ModuleType

from kernel_cases import Case, Shape, make_case
from triton.runtime.jit import JITFunction

from assignment.provided.lab.kernel import Launch, Traffic, lab
from assignment.provided.lab.kernel.session import bound, grid_of, launches_go_to, unwrap

TILES, WARPS = (16, 32, 64, 128), (4, 8)
SPLITS = (1, 4, None)
FINE_SPLITS, FINE_WARPS = (1, 2, 4, 8, 16, None), (2, 4, 8)  # where the tile cannot be varied
MOST_SPLITS = 256
UNLIMITED = 2**30
UNCHANGED = ("kernel", "constants", "grid", "num_warps", "problems")

Recorded = list[tuple[str, tuple[int, int, int], dict]]  # kernel, grid, constants of each launch


@dataclass(frozen=True)
class Variant:
    """tile: None for what the module has. splits: None for what it takes by default."""

    tile: int | None
    splits: int | None
    warps: int


def variants(module: ModuleType) -> list[Variant]:
    if isinstance(getattr(module, "TILE", None), int):
        return [Variant(tile, s, warps) for tile in TILES for s in SPLITS for warps in WARPS]
    return [Variant(None, splits, warps) for splits in FINE_SPLITS for warps in FINE_WARPS]


@contextmanager
def tile_of(module: ModuleType, tile: int | None) -> Iterator[None]:
    """Inside, the module's TILE is this one, without a limit."""
    changed = {"TILE": tile, "TILE_BYTES": UNLIMITED} if tile else {}
    before = {name: getattr(module, name) for name in changed if hasattr(module, name)}
    for name in before:
        setattr(module, name, changed[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@contextmanager
def on_gpu(warps: int | None = None) -> Iterator[None]:
    """Inside, launches go to the GPU, with so many warps a program if a number is given."""
    before = JITFunction.run

    def run(kernel, *args, **kwargs):
        unwrap(kernel)
        return before(kernel, *args, **kwargs | ({"num_warps": warps} if warps else {}))

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = before


def recorded(attention: Callable, case: Case, splits: int | None) -> Recorded:
    """What would be launched; nothing is."""
    launches: Recorded = []

    def note(kernel: JITFunction, grid, args: tuple, kwargs: dict) -> None:
        named, _ = bound(kernel, args, kwargs)
        constants = {p.name: named[p.name] for p in kernel.params if p.is_constexpr}
        launches.append((kernel.fn.__name__, grid_of(grid, named), constants))

    with launches_go_to(note):
        attention(*case.arguments()[:-1], splits)
    return launches


def default_splits(attention: Callable, case: Case) -> int | None:
    """The number that makes the same launches as no number does; None if there is none."""
    wanted = recorded(attention, case, None)
    numbers = range(1, MOST_SPLITS + 1)
    return next((n for n in numbers if recorded(attention, case, n) == wanted), None)


def metered(attention: Callable, shape: Shape, tile: int | None) -> list[Launch]:
    """What the launches of a batch of equally long requests move and compute.

    Metered for one request and one KV head, which the CPU can do, and multiplied by their numbers:
    right where each program works for one request and one KV head, or for a part of it, as then all
    requests and heads do the same. (Only the splits' sums lie closer together there, and share some
    sectors.)

    Args:
        tile: that the module has now, or None.
    """
    group, copies = shape.heads // shape.kv_heads, shape.batch * shape.kv_heads
    small = replace(shape, lengths=shape.lengths[:1], heads=group, kv_heads=1)
    return [multiplied(launch, copies) for launch in _metered(attention, small, tile)]


@cache
def _metered(attention: Callable, shape: Shape, tile: int | None) -> list[Launch]:
    with lab() as seen:
        attention(*make_case(shape, "cpu", seed=0).arguments())
    return seen.launches


def multiplied(launch: Launch, copies: int) -> Launch:
    """As if there were so many times its programs."""
    changed = {
        field.name: _times(getattr(launch, field.name), copies)
        for field in fields(launch)
        if field.name not in UNCHANGED
    }
    x, y, z = launch.grid
    return replace(launch, grid=(copies * x, y, z), **changed)


def _times(value: object, copies: int) -> object:
    if isinstance(value, Traffic):
        return Traffic(*(copies * getattr(value, field.name) for field in fields(value)))
    if isinstance(value, dict):
        return {name: _times(part, copies) for name, part in value.items()}
    return copies * value if isinstance(value, int | list) else value  # a list is repeated


def programs(launches: Recorded) -> list[int]:
    return [x * y * z for _, (x, y, z), _ in launches]


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's: 1 if both have the same order. Equal values share the mean of their ranks.

    NaN where all values of a side are equal.
    """
    left, right = _ranks(left), _ranks(right)
    middle = (len(left) + 1) / 2
    both = sum((a - middle) * (b - middle) for a, b in zip(left, right, strict=True))
    spread = [sum((rank - middle) ** 2 for rank in ranks) for ranks in (left, right)]
    return both / (spread[0] * spread[1]) ** 0.5 if all(spread) else float("nan")


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]
