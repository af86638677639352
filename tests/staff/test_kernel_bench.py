"""The bench of the kernels without a GPU: its clock, its inputs, and what it takes for right."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.staff.small_bench import loops, put, scripts, small_bench, some_shape

pytest.importorskip("triton", reason="Triton exists for Linux only")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "notebooks" / "gpu_kernels.py"


@pytest.fixture(scope="module")
def parts():
    with scripts() as found:
        yield found


@pytest.fixture
def bench(parts, monkeypatch):
    return small_bench(parts, monkeypatch)


# ---- without a GPU


def test_without_a_gpu_it_is_one_plain_line():
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, SCRIPT], capture_output=True, text=True, env=environ, timeout=120
    )
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.count("\n") == 1 and "needs a GPU" in done.stdout


@pytest.mark.parametrize("name", ["speed", "serving", "speculative", "compression", "kernels"])
def test_make_bench_finds_one_script(name):
    assert 'notebooks/*_"$$bench".py' in (ROOT / "Makefile").read_text()
    assert len(list(SCRIPT.parent.glob(f"*_{name}.py"))) == 1


# ---- the clock


def test_works_take_turns_and_warm_up_does_not_count(parts, bench):
    calls, ticks = [], iter([100, 100, 1, 10, 2, 20, 3, 30, 4, 40])

    def clock(work):
        work()
        return float(next(ticks))

    works = {name: lambda number, name=name: calls.append((name, number)) for name in ("a", "b")}
    bench()
    found = parts.clock.in_turns(works, clock)
    assert calls == [(name, number) for number in range(5) for name in ("a", "b")]
    assert (found["a"].seconds, found["b"].seconds) == (2.5, 25)
    assert found["a"].low < 2.5 < found["a"].high


def test_what_is_faster_than_the_roofline_is_refused(parts):
    timing = parts.clock.Timing(1e-6, 2e-6, 3e-6)
    assert timing.row(floor=1.9e-6) == {"us": 2.0, "quartiles": [1.0, 3.0]}
    (refused,) = timing.row(floor=2.1e-6).items()
    assert refused[0] == "refused" and "2.1 µs" in refused[1]


def test_a_copy_reads_and_writes(parts, bench, monkeypatch):
    monkeypatch.setattr(parts.bench, "COPIED", 1000)
    found = parts.bench.measure_clock(bench(bandwidth=math.inf))
    assert found["copied_bytes_per_second"] == 2000
    assert found["smallest_launch_us"] == 1e6 and found["roofline_bytes_per_second"] is None


def test_the_roofline_is_the_larger_of_what_is_known(parts):
    h100 = parts.bench.gpu_of("NVIDIA H100 80GB HBM3")
    assert h100.chip.name == "H100 SXM"
    assert parts.bench.gpu_of("NVIDIA GeForce RTX 4090") is None
    assert parts.bench.gpu_of("NVIDIA GH200 480GB") is None  # of another memory
    nothing = SimpleNamespace()
    faster = SimpleNamespace(memory_clock_rate=3_201_000, memory_bus_width=6144)
    of = parts.bench.roofline_bandwidth
    assert of(h100, nothing) == h100.chip.bandwidth
    assert of(h100, faster) == of(None, faster) == pytest.approx(4.917e12, rel=1e-3)
    assert of(None, nothing) == math.inf


# ---- inputs and what is right


@pytest.mark.parametrize("window", [None, 1, 6])
def test_the_oracle_is_attention_over_the_tables(parts, window):
    case = parts.cases.make_case(some_shape(parts, window=window), "cpu", seed=3)
    out = loops(*case.arguments())
    assert parts.cases.error(case, out) < 1e-6
    assert parts.cases.error(case, out.roll(1, dims=1)) > 0.1
    out[0, 0, 0] = math.nan
    assert parts.cases.error(case, out) == math.inf


def test_what_is_nobodys_is_nan_and_no_token_is(parts):
    case = parts.cases.make_case(some_shape(parts, window=6), "cpu", seed=0)
    finite = case.k_cache.isfinite().flatten(2).all(2)  # [blocks, block_size]
    assert int(finite.sum()) == 7 + 8  # all of request 0; of the other, from its block 3 on
    assert int(finite.all(1).sum()) == 1 + 1


def test_a_shape_counts_the_bytes_of_what_is_seen(parts):
    shape = some_shape(parts, window=10)
    kv = 2 * (7 + 0 + 10) * 2 * 20 * 4
    assert (shape.kv_bytes, shape.bytes) == (kv, kv + 2 * 3 * 6 * 20 * 4)


def test_a_rounded_answer_is_right_and_a_coarser_one_is_not(parts):
    case = parts.cases.make_case(some_shape(parts, dtype=torch.float16), "cpu", seed=1)
    allowed = parts.cases.allowed(torch.float16)
    exact = torch.stack([parts.cases.expected(case, row) for row in range(3)])
    assert parts.cases.error(case, exact.half()) < allowed / 4
    assert parts.cases.error(case, exact.bfloat16()) > allowed / 4
    assert parts.cases.error(case, exact * 1.01) > allowed


def test_the_baseline_gathers_and_attends(parts):
    shape = some_shape(parts, lengths=(13, 13))
    case = parts.cases.make_case(shape, "cpu", seed=2)
    out = parts.baselines.attention(case, *parts.baselines.gathered(case))
    assert parts.cases.error(case, out) < 1e-6


def test_checks_tell_right_from_wrong(parts, bench, monkeypatch):
    monkeypatch.setattr(parts.checks, "SHAPES", [some_shape(parts)])
    monkeypatch.setattr(parts.checks, "STORED", parts.checks.STORED[-2:])

    def unmasked(*args):
        return loops(*args[:4], args[4] + 1, *args[5:])

    def without_skips(k, v, k_cache, v_cache, slots):
        put(k, v, k_cache, v_cache, slots.clamp(min=0))

    def crash(*args):
        raise RuntimeError("out of luck\nand more")

    def rights(**changed):
        return [row["right"] for row in parts.checks.measure_checks(bench(**changed))]

    assert rights() == [True, True, True]
    assert rights(attention=unmasked) == [True, True, False]
    assert rights(store=without_skips) == [False, False, True]
    row = parts.checks.measure_checks(bench(attention=crash))[-1]
    assert row["failed"] == "RuntimeError: out of luck"


def test_a_kernel_that_is_not_written_is_left_out(parts, bench, monkeypatch, capsys):
    monkeypatch.setattr(parts.checks, "STORED", parts.checks.STORED[-1:])

    def stub(*args):
        raise NotImplementedError

    rows = parts.checks.measure_checks(bench(attention=stub))
    assert [row["kernel"] for row in rows] == ["store_kv"]
    assert "paged_attention is not written yet" in capsys.readouterr().out


# ---- the file


def test_each_part_is_written_when_it_is_done(parts, bench, tmp_path):
    def stops(bench):
        raise KeyboardInterrupt

    def stub(bench):
        raise NotImplementedError

    machine, file, run = {"machine": "a GPU"}, tmp_path / "found.json", parts.bench.run
    all_parts = {"one": lambda b: 1, "stub": stub, "two": lambda b: 2, "bad": stops}
    with pytest.raises(KeyboardInterrupt):
        run(all_parts, bench(), machine, file)
    assert json.loads(file.read_text()) == machine | {"one": 1, "two": 2}
    assert run({"one": lambda b: 5}, bench(), machine, file) == machine | {"one": 5, "two": 2}
    other = {"machine": "another GPU"}
    assert run({"two": lambda b: 2}, bench(), other, file) == other | {"two": 2}
