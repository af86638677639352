"""The bench of the other kernels, small and on the CPU: inputs, what is right, verdicts."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import pytest
import torch

from assignment.provided.lab.kernel import GPUS
from tests.staff.small_bench import always, scripts, small_bench

pytest.importorskip("triton", reason="Triton exists for Linux only")

SMALL = {
    "varlen_attention": {"lengths": (20, 1, 33), "heads": 8},
    "int8_matmul": {"rows": 3, "inputs": 64, "outputs": 48},
    "latent_decode": {"batch": 2, "length": 32, "heads": 16},
    "int4_matmul": {"rows": 2, "inputs": 64, "outputs": 32, "group": 32},
    "chunked_linear_attention": {"lengths": (70, 1), "heads": 2},
    "rejection_sampling": {"batch": 9, "vocab": 300},
}


@pytest.fixture(scope="module")
def parts():
    with scripts() as found:
        yield found


@pytest.fixture
def bench(parts, monkeypatch):
    """On the CPU; the kernels in the lab."""
    small = {name: partial(make, **SMALL[name]) for name, make in parts.tasks.MAKERS.items()}
    monkeypatch.setattr(parts.others, "MAKERS", small)
    make = small_bench(parts, monkeypatch)
    kernels = {name: getattr(import_module(f"solutions.kernels.{name}"), name) for name in SMALL}
    return lambda **changed: make(**({"others": kernels} | changed))


def test_references_are_right_and_torch_stands_beside_them(parts, bench):
    monkeyed = bench(gpu=GPUS["H100"])
    rows = parts.others.measure_others(monkeyed)
    assert [row["kernel"] for row in rows] == list(SMALL)
    for row in rows:
        assert row["ours"]["us"] == row["torch"]["us"] == 1e6, row
        assert row["error"] < 3e-3 and row["times_torch"] == 1


@pytest.mark.parametrize("name", SMALL)
def test_torchs_way_computes_the_same(parts, name):
    task = parts.tasks.MAKERS[name]("cpu", 4, **SMALL[name])
    right = task.right()
    got = task.in_torch()
    if name == "chunked_linear_attention":
        got = torch.cat([part.transpose(0, 1).flatten() for part in got])
        right = right[: len(got)]
    assert parts.others.error(got, right) < (0.02 if name == "int8_matmul" else 3e-3)
    assert parts.others.error(torch.zeros_like(right), right) > 0.5


def test_wrong_too_fast_and_missing(parts, bench, capsys):
    def stub(*args):
        raise NotImplementedError

    def zeros(x, codes, *rest):
        return torch.zeros(len(x), len(codes))

    rows = parts.others.measure_others(
        bench(others={name: stub for name in SMALL} | {"int8_matmul": zeros})
    )
    assert [row["kernel"] for row in rows] == ["int8_matmul"]
    assert rows[0]["ours"]["refused"].startswith("wrong: the error is ")
    assert "int4_matmul is not written yet" in capsys.readouterr().out
    (row,) = parts.others.measure_others(
        bench(clock=always(1e-12), others={name: stub for name in SMALL} | {"int4_matmul": zeros})
    )
    assert "refused" in row["ours"] and "us" in row["torch"]
