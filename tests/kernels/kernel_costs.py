"""What the tests of kernels charge for: bytes, predicted time, what the compiler makes of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from assignment.provided.lab.kernel import GPUS, Prediction, Traffic, predict
from assignment.provided.units import seconds
from tests.grading.kernels.boundary import Seen
from tests.grading.records import Roofline
from tests.grading.wording import plural

__tracebackhide__ = True

H100 = GPUS["H100"]
ARCHITECTURES = ("sm_80", "sm_90")
PARKED = 32  # bytes a thread: so much the assembler may spill with 200 registers left


def moved_bytes(seen: Seen) -> int:
    """All that kernels requested, and what torch moved beside them."""
    of_kernels = sum(launch.bytes_loaded + launch.bytes_stored for launch in seen.launches)
    return of_kernels + seen.cost.bytes


def charge_bytes(budget, seen: Seen, least: int, beside: dict[str, int]) -> None:
    """Whoever moves less than the least (other splits, larger tiles) is not better than ideal."""
    moved = max(moved_bytes(seen), least)
    budget(moved, least, unit="bytes", beside=beside, note=most_moved(seen))


def most_moved(seen: Seen) -> str:
    """Which loads or stores have the most bytes that are not moved for the first time."""
    found: dict[str, list[Traffic]] = defaultdict(list)
    for launch in seen.launches:
        for verb, of in (("loads of", launch.loaded), ("stores to", launch.stored)):
            for argument, traffic in of.items():
                found[f"{verb} {argument} in {launch.kernel}"].append(traffic)
    moved = {what: sum(t.requested for t in each) for what, each in found.items()}
    own = {what: max(t.unique for t in each) for what, each in found.items()}
    told = [f"torch moved {seen.cost.bytes:,} bytes"] if seen.cost.bytes else []
    if most := max(moved, key=lambda what: (moved[what] - own[what], moved[what]), default=None):
        times = moved[most] / max(own[most], 1)
        told = [f"the most: {most}, {moved[most]:,} bytes, each {times:.1f} times", *told]
    return "; ".join(told)


def charge_time(
    budget, seen: Seen, least: int, *, flops: int, beside: dict[str, float], dtype: str = "fp16"
) -> None:
    """As the lab predicts it for an H100, torch's bytes at full bandwidth.

    The ideal is the roofline: the least bytes at full bandwidth, or the task's FLOPs at the rate of
    products of `dtype`, whatever takes longer.
    """
    predicted = predict(seen.launches, H100)
    ideal = max(least / H100.bandwidth, flops / H100.dot_rate(dtype))
    got = predicted.seconds + seen.cost.bytes / H100.bandwidth
    moved = Roofline(H100.name, flops, predicted.bytes + seen.cost.bytes, least)
    note = longest_launch(seen, predicted)
    budget(max(got, ideal), ideal, unit="s", beside=beside, roofline=moved, note=note)


def longest_launch(seen: Seen, predicted: Prediction) -> str:
    """What each part of its time is; the largest, which decides, first."""
    pairs = list(zip(seen.launches, predicted.launches, strict=True))
    if not pairs:
        return "no kernel was launched"
    launch, time = max(pairs, key=lambda pair: pair[1].seconds)
    share = max(launch.program_bytes, default=0) / max(sum(launch.program_bytes), 1)
    programs = f"{plural(launch.programs, 'program')}, the largest with {share:.1%} of the bytes"
    parts = {
        "memory": time.memory,
        "arithmetic": time.arithmetic,
        f"the busiest multiprocessor ({programs})": time.busiest,
    }
    told = [f"{part} {seconds(parts[part])}" for part in sorted(parts, key=parts.get, reverse=True)]
    among = f"the longest of {len(pairs)} launches, " if len(pairs) > 1 else ""
    beside = f"; torch {seconds(seen.cost.bytes / H100.bandwidth)}" if seen.cost.bytes else ""
    return f"{among}{launch.kernel}: {', '.join(told)}{beside}"


def by_one_program(nbytes: float) -> float:
    """Seconds that one multiprocessor of an H100 takes to move so many bytes."""
    return nbytes / (H100.bytes_per_clock * H100.clock)


def assert_fits(seen: Seen, architecture: str) -> None:
    for launch, compiled in zip(seen.launches, seen.compiled(architecture), strict=True):
        assert compiled.programs_at_once >= 1, (
            f"{launch.kernel}: a program wants {compiled.shared:,} bytes of shared memory and "
            f"{compiled.registers} registers a thread, more than {architecture} has"
        )


def assert_kernels_work(seen: Seen, flops: int) -> None:
    """At least half of the task's FLOPs, and torch at most a tenth."""
    of_kernels = sum(sum(launch.program_flops) for launch in seen.launches)
    assert of_kernels > flops / 2, f"kernels did {of_kernels:,} of {flops:,} FLOPs"
    assert seen.cost.flops < flops / 10, f"torch did {seen.cost.flops:,} FLOPs in the launcher"


def assert_asks_nothing(seen: Seen) -> None:
    """A launcher allocates and decides, by numbers that it is given and by shapes."""
    asked = ", ".join(dict.fromkeys(seen.waits))
    assert not seen.waits, (
        f"the launcher asks what is in a tensor ({asked}): on a GPU it waits until all that was "
        "launched before has ended. It knows shapes, and the numbers that it is given; all else a "
        "kernel can load"
    )


def charge_code(
    budget, whole: Sequence[Seen], *, reading: Seen | None = None, products: Seen | None = None
) -> None:
    """Of each kind of fault one: registers of any launch in `whole` that spill; half or more of the
    loads of the launch that reads the most no 16 bytes a thread; products on no tensor cores."""
    faults = {"spills": spills(whole)}
    if reading is not None:
        faults["narrow loads"] = narrow_loads(reading)
    if products is not None:
        faults["no tensor cores"] = no_tensor_cores(products)
    found = {kind: told for kind, told in faults.items() if told}
    unit = f"fault{'' if len(found) == 1 else 's'} ({', '.join(found or faults)})"
    budget(len(found), 0, unit=unit, note="; ".join(found.values()))


def spills(whole: Sequence[Seen]) -> str:
    """Of which kernels, each where it is worst; "" for none that spills more than is `PARKED`."""
    worst: dict[str, tuple[int, str]] = {}
    for seen in whole:
        for architecture in ARCHITECTURES:
            for launch, code in zip(seen.launches, seen.compiled(architecture), strict=True):
                told = (
                    f"{code.kernel} spills {code.spilled:,} bytes a thread on {architecture}, with "
                    f"{code.registers} registers and num_warps={launch.num_warps}"
                )
                worst[code.kernel] = max(worst.get(code.kernel, (0, "")), (code.spilled, told))
    return "; ".join(told for spilled, told in worst.values() if spilled > PARKED)


def narrow_loads(seen: Seen) -> str:
    """Of the launch that reads the most; "" where more than half of its loads are wide."""
    loaded = [launch.bytes_loaded for launch in seen.launches]
    code = seen.compiled("sm_80")[loaded.index(max(loaded))]
    narrow = code.loads - code.wide_loads
    if 2 * code.wide_loads >= code.loads:
        return ""
    return f"{narrow} of {code.loads} loads in {code.kernel} on sm_80 are no 16 bytes a thread"


def no_tensor_cores(seen: Seen) -> str:
    """Whose products reach none; "" where any do."""
    if any(code.tensor_core for code in seen.compiled("sm_80")):
        return ""
    multiply = dict.fromkeys(launch.kernel for launch in seen.launches if launch.dot_flops)
    if not multiply:
        return "no kernel has a tl.dot"
    return f"products in {', '.join(multiply)} reach no tensor cores of sm_80"
