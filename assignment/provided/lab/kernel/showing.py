"""What the lab saw, as text: see your kernel's bytes."""

from collections.abc import Sequence
from typing import Protocol

from ...units import seconds
from ..cost import Cost
from .gpus import GPU, gpu_called
from .launch import Launch
from .memory import SECTOR
from .time_model import Prediction, predict

COLUMNS = ("requested", "unique", "in sectors")  # of bytes
WIDE = 14  # of a column
BUSIEST = "one multiprocessor"
MOST_FAULTS = 5  # that are listed of a launch


class WasSeen(Protocol):
    """A `Lab`, when its launches are done."""

    @property
    def launches(self) -> Sequence[Launch]: ...

    @property
    def cost(self) -> Cost: ...

    @property
    def waits(self) -> Sequence[str]: ...


def show(seen: WasSeen, gpu: GPU | str | None = None) -> None:
    """Print `in_words`."""
    print(in_words(seen, gpu))


def in_words(seen: WasSeen, gpu: GPU | str | None = None) -> str:
    """Each launch: bytes by argument, FLOPs, faults; with a GPU, how long it would take there.

    Bytes are those that programs asked for, the different ones among them, and those of the sectors
    that have to be moved for them.

    Raises:
        NoRate, ValueError: as `predict`.
    """
    gpu = gpu_called(gpu) if gpu else None
    found = predict(seen.launches, gpu) if gpu else None
    times = found.launches if found else (None,) * len(seen.launches)
    parts = [
        "\n".join([*_launch(launch), *_time(time)])
        for launch, time in zip(seen.launches, times, strict=True)
    ]
    if not parts:
        parts.append("no kernel was launched")
    if found and len(times) > 1:
        parts.append(f"all {len(times)} launches: {seconds(found.seconds)}")
    if seen.cost.bytes or seen.cost.flops:
        parts.append(f"torch, beside: {seen.cost.bytes:,} bytes, {seen.cost.flops:,} FLOPs")
    if seen.waits:
        parts.append(f"a GPU would be waited for: {', '.join(dict.fromkeys(seen.waits))}")
    if gpu:
        parts.append(f"Times are those that the model predicts for the {gpu.name}.")
    return "\n\n".join(parts)


def _launch(launch: Launch) -> list[str]:
    grid = " × ".join(map(str, launch.grid))
    traffic = [("reads", name, one) for name, one in launch.loaded.items()]
    traffic += [("writes", name, one) for name, one in launch.stored.items()]
    names = max((len(name) for _, name, _ in traffic), default=0)
    lines = [f"{launch.kernel}: {launch.programs} programs ({grid}) of {launch.num_warps} warps"]
    lines.append(" " * (9 + names) + "".join(f"{column:>{WIDE}}" for column in COLUMNS))
    for verb, name, one in traffic:
        numbers = one.requested, one.unique, SECTOR * one.sectors
        counted = "".join(f"{number:>{WIDE},}" for number in numbers)
        lines.append(f"  {verb:<6} {name:<{names}}{counted}")
    products = [f"{flops:,} in {dtype} products" for dtype, flops in launch.dot_flops.items()]
    others = f"{launch.vector_flops:,}{' others' if products else ''}"
    lines.append(f"  FLOPs  {', '.join([*products, others])}")
    lines += [f"  fault  {problem}" for problem in launch.problems[:MOST_FAULTS]]
    if (more := len(launch.problems) - MOST_FAULTS) > 0:
        lines.append(f"  and {more} faults more")
    return lines


def _time(found: Prediction | None) -> list[str]:
    if found is None:
        return []
    parts = {"memory": found.memory, "arithmetic": found.arithmetic, BUSIEST: found.busiest}
    told = ", ".join(f"{name} {seconds(part)}" for name, part in parts.items())
    limit = BUSIEST if found.limit == "multiprocessor" else found.limit
    return [f"  time   {seconds(found.seconds)}, limited by {limit} ({told})"]
