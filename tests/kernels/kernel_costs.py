"""What the tests of kernels charge for: bytes, predicted time, what the compiler makes of it."""

from __future__ import annotations

from collections.abc import Sequence

from assignment.provided.lab.kernel import GPUS, predict
from tests.grading.kernels.boundary import Seen
from tests.grading.records import Roofline

__tracebackhide__ = True

H100 = GPUS["H100"]
ARCHITECTURES = ("sm_80", "sm_90")


def moved_bytes(seen: Seen) -> int:
    """All that kernels requested, and what torch moved beside them."""
    of_kernels = sum(launch.bytes_loaded + launch.bytes_stored for launch in seen.launches)
    return of_kernels + seen.cost.bytes


def charge_bytes(budget, seen: Seen, least: int, beside: dict[str, int]) -> None:
    """Whoever moves less than the least (other splits, larger tiles) is not better than ideal."""
    budget(max(moved_bytes(seen), least), least, unit="bytes", beside=beside)


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
    budget(max(got, ideal), ideal, unit="s", beside=beside, roofline=moved)


def by_one_program(nbytes: float) -> float:
    """Seconds that one multiprocessor of an H100 takes to move so many bytes."""
    return nbytes / (H100.bytes_per_clock * H100.clock)


def assert_fits(seen: Seen, architecture: str) -> None:
    for launch, compiled in zip(seen.launches, seen.compiled(architecture), strict=True):
        assert compiled.programs_at_once >= 1, (
            f"{launch.kernel}: a program wants {compiled.shared:,} bytes of shared memory and "
            f"{compiled.registers} registers a thread, more than {architecture} has"
        )


def charge_code(
    budget, whole: Sequence[Seen], *, reading: Seen | None = None, products: Seen | None = None
) -> None:
    """Of each kind of fault one: registers of any launch in `whole` that spill; half or more of the
    loads of the launch that reads the most no 16 bytes a thread; products on no tensor cores."""
    spilled = sum(c.spilled for seen in whole for a in ARCHITECTURES for c in seen.compiled(a))
    looked_for = {"spills": (spilled > 0, f"{spilled:,} bytes that spill")}
    if reading is not None:
        loaded = [launch.bytes_loaded for launch in reading.launches]
        code = reading.compiled("sm_80")[loaded.index(max(loaded))]
        narrow = f"{code.loads - code.wide_loads} of {code.loads} loads narrow"
        looked_for["narrow loads"] = (2 * code.wide_loads < code.loads, narrow)
    if products is not None:
        is_missing = not any(c.tensor_core for c in products.compiled("sm_80"))
        looked_for["no tensor cores"] = (is_missing, "no tensor cores")
    found = [told for is_there, told in looked_for.values() if is_there]
    told = "; ".join(found) or ", ".join(looked_for)
    budget(len(found), 0, unit=f"fault{'' if len(found) == 1 else 's'} ({told})")
