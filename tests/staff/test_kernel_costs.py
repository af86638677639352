"""What the tests of kernels say of a cost that is too high: which launch, which argument, why."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from assignment.provided.lab.kernel import Launch, Traffic
from assignment.provided.lab.kernel.compiled import Compiled
from tests.kernels.kernel_costs import H100, charge_bytes, charge_code, charge_time

MIB = 2**20


def launch(kernel: str, *, moved=(), flops=0, programs=1, **traffic) -> Launch:
    """moved: bytes of each program. traffic: (requested, unique) bytes that an argument loads."""
    made = Launch(kernel, (max(programs, len(moved)), 1, 1), {}, num_warps=8)
    made.loaded = {
        name: Traffic(1, requested, unique, requested // 32)
        for name, (requested, unique) in traffic.items()
    }
    made.dot_flops = {"fp16": flops} if flops else {}
    made.program_bytes = list(moved) or [0] * programs
    made.program_flops = [flops / made.programs] * made.programs
    made.program_dot_flops = {"fp16": made.program_flops} if flops else {}
    return made


def seen(*launches: Launch, torch_bytes: int = 0, codes=()) -> SimpleNamespace:
    """codes: of each launch, the same for both architectures but for what is spilled."""

    def compiled(architecture: str) -> list[Compiled]:
        return [
            Compiled(one.kernel, architecture, 255, spilled[architecture], 0, loads, wide, cores, 1)
            for one, (spilled, loads, wide, cores) in zip(launches, codes, strict=True)
        ]

    cost = SimpleNamespace(bytes=torch_bytes)
    return SimpleNamespace(launches=list(launches), cost=cost, compiled=compiled)


def note(charge, *args, **options) -> str:
    told = []
    charge(lambda got, ideal, **figure: told.append(figure), *args, **options)
    return told[0]["note"]


class TestBytes:
    def test_what_is_moved_again_and_again(self):
        """And not what is large, or asked for in many launches of which each has its own."""
        one = launch("_one", weight=(900, 900), keys=(400, 100), values=(300, 100))
        assert note(charge_bytes, seen(one), 1000, {}) == (
            "the most: loads of keys in _one, 400 bytes, each 4.0 times"
        )

    def test_a_state_that_comes_in_each_launch(self):
        steps = [launch("_step", state=(1000, 1000), keys=(3000, 3000)) for _ in range(1)]
        steps += [launch("_step", state=(1000, 1000)) for _ in range(5)]
        for one in steps:
            one.stored = {"state": Traffic(1, 1000, 1000, 32)}
        assert "loads of state in _step, 6,000 bytes, each 6.0 times" in note(
            charge_bytes, seen(*steps), 1000, {}
        )
        for one in steps:
            one.stored["state"].requested += 1000
        assert "stores to state in _step, 12,000 bytes" in note(
            charge_bytes, seen(*steps), 1000, {}
        )

    def test_torch(self):
        one = launch("_one", keys=(300, 300))
        assert note(charge_bytes, seen(one, torch_bytes=4000), 300, {}) == (
            "the most: loads of keys in _one, 300 bytes, each 1.0 times; torch moved 4,000 bytes"
        )


class TestTime:
    def charge(self, *launches: Launch, **options) -> str:
        return note(charge_time, seen(*launches, **options), 10, flops=10, beside={})

    def test_one_program_does_most_of_it(self):
        """A quarter of the bytes goes to each of 4 multiprocessors of 132."""
        slow = launch("_slow", moved=[MIB] * 3 + [2 * MIB], x=(5 * MIB, 5 * MIB))
        fast = launch("_fast", moved=[1000] * 200, x=(200_000, 200_000))
        told = self.charge(fast, slow)
        longest = "the longest of 2 launches, _slow: the busiest multiprocessor (4 programs, the "
        assert told.startswith(f"{longest}largest with 40.0% of the bytes) ")
        assert [part.split()[0] for part in told.split(", ")[3:]] == ["memory", "arithmetic"]

    @pytest.mark.parametrize(
        "one, limit",
        [
            (launch("_one", moved=[MIB] * 1320, x=(1320 * MIB, MIB)), "memory 413 µs"),
            (launch("_one", programs=132, flops=10**9), "arithmetic 1.01 µs"),
        ],
    )
    def test_what_decides_comes_first(self, one, limit):
        assert self.charge(one).startswith(f"_one: {limit}, ")

    def test_torch(self):
        told = self.charge(launch("_one", moved=[10]), torch_bytes=int(H100.bandwidth * 1e-6))
        assert told.endswith("; torch 1.00 µs")


class TestCode:
    FINE = ({"sm_80": 0, "sm_90": 0}, 10, 8, 4)

    def test_nothing(self):
        one = seen(launch("_one", flops=8), codes=[self.FINE])
        assert note(charge_code, [one], reading=one, products=one) == ""

    def test_spills_of_each_kernel_where_they_are_worst(self):
        spilled = ({"sm_80": 48, "sm_90": 8}, 10, 8, 4)
        other = ({"sm_80": 0, "sm_90": 40}, 10, 8, 4)
        parked = ({"sm_80": 24, "sm_90": 32}, 10, 8, 4)
        both = seen(launch("_one"), launch("_two"), codes=[spilled, other])
        fine = seen(launch("_one"), launch("_three"), codes=[self.FINE, parked])
        assert note(charge_code, [fine, both]) == (
            "_one spills 48 bytes a thread on sm_80, with 255 registers and num_warps=8; "
            "_two spills 40 bytes a thread on sm_90, with 255 registers and num_warps=8"
        )

    def test_narrow_loads_of_what_reads_the_most(self):
        narrow = ({"sm_80": 0, "sm_90": 0}, 10, 4, 4)
        one = seen(
            launch("_small", x=(10, 10)), launch("_large", x=(90, 90)), codes=[self.FINE, narrow]
        )
        assert note(charge_code, [one], reading=one) == (
            "6 of 10 loads in _large on sm_80 are no 16 bytes a thread"
        )

    def test_products_on_no_tensor_cores(self):
        slow = ({"sm_80": 0, "sm_90": 0}, 10, 8, 0)
        one = seen(launch("_one", flops=8), launch("_two"), codes=[slow, slow])
        assert note(charge_code, [one], products=one) == (
            "products in _one reach no tensor cores of sm_80"
        )
        none = seen(launch("_one"), codes=[slow])
        assert note(charge_code, [none], products=none) == "no kernel has a tl.dot"
