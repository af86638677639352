"""A small bench of the kernels for tests: on the CPU, with PyTorch in place of kernels, and a clock
that is told what to say."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch

from assignment.provided.lab.kernel import lab

SCRIPTS = Path(__file__).resolve().parents[2] / "notebooks"
H100_BYTES_A_SECOND = 3.35e12


@contextmanager
def scripts():
    """The scripts' modules, imported as the scripts import each other."""
    sys.path.insert(0, str(SCRIPTS))
    names = (
        "baselines", "bench", "cases", "checks", "clock", "decode", "others", "store", "tasks",
        "variants",
    )  # fmt: skip
    try:
        yield SimpleNamespace(**{name: __import__(f"kernel_{name}") for name in names})
    finally:
        sys.path.remove(str(SCRIPTS))
        for name in names:
            sys.modules.pop(f"kernel_{name}", None)


@contextmanager
def in_lab(warps=None):
    with lab() as seen:
        yield
    seen.check()


def loops(q, k_cache, v_cache, tables, lengths, most, scale, window=None, splits=None):
    """`paged_attention` by PyTorch, one query head at a time."""
    out = torch.zeros_like(q)
    group, size = q.shape[1] // k_cache.shape[2], k_cache.shape[1]
    for row, length in enumerate(lengths.tolist()):
        first = max(0, length - (window or length))
        slots = [(tables[row, i // size], i % size) for i in range(first, length)]
        for head in range(q.shape[1]) if slots else ():
            k, v = (
                torch.stack([cache[b, at, head // group] for b, at in slots]).float()
                for cache in (k_cache, v_cache)
            )
            weights = (k @ q[row, head].float() * scale).softmax(0)
            out[row, head] = (weights @ v).to(q.dtype)
    return out


def put(k, v, k_cache, v_cache, slots):
    """`store_kv` by PyTorch."""
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            k_cache.flatten(0, 1)[slot], v_cache.flatten(0, 1)[slot] = k[row], v[row]


def always(seconds):
    def clock(work):
        work()
        return seconds

    return clock


def small_bench(parts, monkeypatch):
    """Makes benches on the CPU, with PyTorch in place of the kernels; all takes one second."""
    monkeypatch.setattr(parts.clock, "ROUNDS", 4)
    monkeypatch.setattr(parts.clock, "WARM_UP", 1)
    sizes = {"heads": 4, "kv_heads": 2, "head_dim": 32}
    monkeypatch.setattr(parts.decode, "Shape", partial(parts.cases.Shape, **sizes))

    def make(**changed):
        usual = {
            "attention": loops,
            "store": put,
            "module": SimpleNamespace(),
            "clock": always(1.0),
            "running": in_lab,
            "gpu": None,
            "bandwidth": H100_BYTES_A_SECOND,
            "cache": 1000,
            "free": lambda: math.inf,
            "device": "cpu",
        }
        return parts.bench.Bench(**(usual | changed))

    return make


def some_shape(parts, **changed):
    usual = {"lengths": (7, 0, 23), "heads": 6, "kv_heads": 2, "head_dim": 20, "block_size": 5}
    return parts.cases.Shape(**(usual | {"dtype": torch.float32} | changed))
