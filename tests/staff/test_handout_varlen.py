"""Prefill attention and 8-bit products in the handout: numbers by other words, and the lab's."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from assignment.provided.lab.kernel import GPUS, lab
from assignment.provided.lab.kernel.compiled import SM80, SM90, DoesNotCompile, compile_launch
from solutions.kernels.int8_matmul import int8_matmul
from solutions.kernels.varlen_attention import varlen_attention
from tests.grading.draw import Draw
from tests.kernels import int8_inputs, varlen_inputs
from tests.staff.test_handout import COURSE, query, text_of

GPU = GPUS["H100"]
HEADS, KV_HEADS, WIDTH = 32, 8, 128  # Llama 3 8B
GROUP = HEADS // KV_HEADS
LOADS = {"prompts": (4, 1024, 0), "chunk": (1, 256, 7936), "drafts": (16, 5, 4091),
         "decodes": (16, 1, 4095)}  # fmt: skip


def test_how_many_kernels_there_are():
    of_unit = [p for p in COURSE.problems.values() if p.unit == "kernels"]
    core = [p for p in of_unit if p.track == "core"]
    assert (len(of_unit), len(core)) == (8, 4)
    text = " ".join(text_of("kernels").split())
    assert "You will write eight, or the four of the core track." in text
    assert "The electives are four:" in text


# --- prefill -------------------------------------------------------------------------------------


def seen(position: int, window: int | None = None) -> range:
    return range(max(0, position + 1 - window) if window else 0, position + 1)


def visited(
    new: int, before: int, heads: int, rows: int, window: int | None = None
) -> list[set[int]]:
    """Of each program, the keys that one of its rows sees."""
    pairs = [(token, head) for token in range(new) for head in range(heads)]
    programs = [pairs[first : first + rows] for first in range(0, len(pairs), rows)]
    return [
        set().union(*(seen(before + token, window) for token in {t for t, _ in program}))
        for program in programs
    ]


def kv_bytes(keys: list[set[int]], heads: int, width: int = WIDTH) -> int:
    return heads * sum(map(len, keys)) * 2 * 2 * width


def test_bytes_of_ragged_requests():
    [stated] = query("ragged-bytes")
    assert [row["name"] for row in stated] == list(LOADS)
    by_name = {row["name"]: row for row in stated}
    for name, (count, new, before) in LOADS.items():
        row = by_name[name]
        assert row["load"] == {"count": count, "new": new, "before": before}
        whole = visited(new, before, 1, new)
        pairs = visited(new, before, GROUP, 64)
        assert row["once"] == count * kv_bytes(whole, KV_HEADS)
        assert row["pairs"] == count * kv_bytes(pairs, KV_HEADS)
        assert row["narrow"] == count * kv_bytes(visited(new, before, GROUP, 16), KV_HEADS)
        assert row["heads"] == count * kv_bytes(visited(new, before, 1, 64), HEADS)
        assert row["all"] == count * kv_bytes(whole * len(pairs), KV_HEADS)
        visible = sum(len(seen(before + i)) for i in range(new))
        assert row["flops"] == count * visible * HEADS * 4 * WIDTH
    assert len(by_name) == len(LOADS)


def test_what_is_said_of_them():
    [stated] = query("ragged-bytes")
    prompts, chunk, drafts, decodes = stated
    for row in (prompts, chunk):  # one head at a time is as good; FLOPs a byte are nearly the rows
        assert row["heads"] < 1.05 * row["pairs"]
        assert 0.98 * 64 < row["flops"] / row["pairs"] <= 64
        assert row["flops"] / row["pairs"] < GPU.flops_per_second / GPU.bandwidth
    for row in (drafts, decodes):
        assert row["heads"] == GROUP * row["pairs"]
    assert decodes["flops"] / decodes["pairs"] == GROUP
    assert prompts["all"] == pytest.approx(2 * prompts["pairs"], rel=0.03)
    assert decodes["narrow"] == decodes["pairs"]
    assert all(row["narrow"] > 1.9 * row["pairs"] for row in (prompts, chunk, drafts))


def test_a_window():
    [[short, long]] = query("ragged-window")
    assert short == kv_bytes(visited(4096, 0, GROUP, 64, 1024), KV_HEADS)
    assert long == kv_bytes(visited(4096, 0, GROUP, 64), KV_HEADS)


def test_from_where_a_prompt_is_limited_by_compute():
    """With each key read once; 2 bytes a number."""
    [stated] = query("prefill-from")

    def intensity(tokens: int) -> float:
        flops = sum(len(seen(position)) for position in range(tokens)) * HEADS * 4 * WIDTH
        return flops / (2 * 2 * tokens * (HEADS + KV_HEADS) * WIDTH)

    line = GPU.flops_per_second / GPU.bandwidth
    assert intensity(stated - 1) < line <= intensity(stated)


@pytest.mark.parametrize("window", [None, 50])
def test_the_formula_describes_the_reference(window):
    """Tiles of 64 rows, of 3 heads: the last token of one is the first of the next."""
    requests, heads, kv_heads, width = [(60, 60), (30, 100), (1, 70)], 6, 2, 16
    counts, lengths = ([one[i] for one in requests] for i in (0, 1))
    starts = torch.tensor([0, *counts]).cumsum(0).int()
    key_starts = torch.tensor([0, *lengths[:-1]]).cumsum(0).int()
    q = torch.randn(sum(counts), heads, width).half()
    k, v = torch.randn(2, sum(lengths), kv_heads, width).half()
    with lab() as watched:
        varlen_attention(q, k, v, starts, torch.tensor(lengths).int(), 60, 0.25, window, key_starts)
    [launch] = watched.launches
    keys = [
        program
        for new, length in requests
        for program in visited(new, length - new, heads // kv_heads, 64, window)
    ]
    asked = sum(launch.loaded[name].requested for name in "kv")
    assert asked == kv_bytes(keys, kv_heads, width)
    ideal = asked + 2 * 2 * q.numel() + 4 * 4 * kv_heads * len(keys)
    assert ideal <= launch.bytes_loaded + launch.bytes_stored <= 1.02 * ideal


@pytest.mark.parametrize("block_size", [None, 16])
def test_the_tests_hold_the_same_against_it(block_size):
    requests, heads, kv_heads, width = [(60, 60), (30, 100), (0, 9), (1, 70)], 6, 2, 16
    with_any = [(new, length) for new, length in requests if new]
    drawn = varlen_inputs.draw_varlen(
        Draw(0), heads, kv_heads, requests, head_dim=width, window=50, block_size=block_size
    )
    keys = [p for n, s in with_any for p in visited(n, s - n, heads // kv_heads, 64, 50)]
    where = [len({key // block_size for key in program}) if block_size else 1 for program in keys]
    numbers = 4 * kv_heads * sum(3 + count for count in where)
    queries = sum(new for new, _ in requests) * heads * width
    ideal = kv_bytes(keys, kv_heads, width) + 2 * 2 * queries + numbers
    assert varlen_inputs.least_bytes(drawn) == ideal


# --- 8-bit products ------------------------------------------------------------------------------


def tiles(size: int, tile: int) -> list[int]:
    """How much of it each has."""
    return [min(tile, size - first) for first in range(0, size, tile)]


def products(rows: int, inputs: int, outputs: int, apart: int = 0) -> tuple[int, int]:
    """Bytes in 16 bits, and as LLM.int8() with columns apart, program by program."""
    half, flags = 0, -(-inputs // 8)
    eight = rows * inputs * 2 + flags  # a first launch
    eight += rows * (inputs * 2 + flags + inputs + 4)
    for m in tiles(rows, 64):
        for n in tiles(outputs, 128):
            half += 2 * (m * inputs + n * inputs + m * n)
            eight += m * (inputs + 4) + n * (inputs + 4) + flags + 2 * m * (n + apart)
    return half, eight


def test_bytes_of_products():
    [stated] = query("int8-products")
    assert [row["M"] for row in stated] == [1, 16, 64, 256, 2048]
    for row in stated:
        half, eight = products(row["M"], 4096, row["O"])
        assert (row["half"], row["eight"]) == (half, eight)
        flops = 2 * row["M"] * 4096 * row["O"]
        for got, nbytes, dtype in zip(row["seconds"], (eight, half), ("int8", "fp16"), strict=True):
            expected = max(nbytes / GPU.bandwidth, flops / GPU.dot_rate(dtype))
            assert got == pytest.approx(expected, rel=1e-12)
            assert nbytes / GPU.bandwidth == expected  # limited by memory, always
    assert 1.8 < stated[-1]["half"] / stated[-1]["eight"] < stated[0]["half"] / stated[0]["eight"]


def test_from_where_it_saves_bytes():
    [stated] = query("int8-break-even")
    for rows, outputs in zip((1, 64), stated, strict=True):
        half, eight = products(rows, 4096, outputs)
        assert eight < half
        half, eight = products(rows, 4096, outputs - 1)
        assert eight >= half
    half, eight = products(64, 576, 3 * 64)  # the keys of SmolLM2
    assert eight >= half


def test_how_much_longer_with_outliers():
    [stated] = query("int8-hit")
    in_tiles = tiles(stated["wide"], stated["tile"])
    twice = GPU.dot_rate("int8") / GPU.dot_rate("fp16")  # a product in 16 bits, in those of int8
    more = stated["hit"] * twice / len(in_tiles)
    assert stated["more"] == pytest.approx(more, rel=1e-3)
    assert 1 + twice == pytest.approx(3, rel=1e-3)


def test_the_formula_of_bytes_describes_the_reference():
    """So many outputs that the reference has tiles of 128; and columns apart, with their x."""
    rows, inputs, outputs = 3, 40, 66 * 128
    x, codes = torch.randn(rows, inputs).half().clamp(-3, 3), torch.ones(outputs, inputs).char()
    scales = torch.ones(outputs)
    _, ideal = products(rows, inputs, outputs)
    found = []
    for threshold in (6.0, float(x.abs().max())):
        with lab() as watched:
            int8_matmul(x, codes, scales, threshold)
        found.append(sum(one.bytes_loaded + one.bytes_stored for one in watched.launches))
        assert len(watched.launches) == 3
    assert ideal <= found[0] <= 1.02 * ideal and found[0] < found[1]


def test_the_tests_hold_the_same_against_products():
    for shape, apart in (((70, 100, 300), 2), ((1, 9, 128), 0)):
        case = int8_inputs.draw_case(Draw(0), *shape, columns=range(apart))
        assert products(*shape, apart)[1] == int8_inputs.least_bytes(case)


@triton.jit
def _product(left, right, out, ROWS: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr):
    row, column, output = tl.arange(0, ROWS), tl.arange(0, INPUTS), tl.arange(0, OUTPUTS)
    a = tl.load(left + row[:, None] * INPUTS + column[None, :])
    b = tl.load(right + output[None, :] * INPUTS + column[:, None])
    place = out + row[:, None] * OUTPUTS + output[None, :]
    tl.store(place, tl.dot(a, b, out_dtype=tl.int32))


@pytest.mark.parametrize("architecture", [SM80, SM90])
def test_the_least_inputs_of_a_product(architecture):
    [least] = query("int8-inputs")
    for inputs in (least, least // 2):
        left, right = (torch.ones(16, inputs, dtype=torch.int8) for _ in range(2))
        out = torch.empty(16, 16, dtype=torch.int32)
        arguments, sizes = (left, right, out), {"ROWS": 16, "INPUTS": inputs, "OUTPUTS": 16}
        if inputs == least:
            assert compile_launch(_product, arguments, sizes, architecture).tensor_core
            continue
        with lab() as watched:
            _product[(1,)](*arguments, **sizes)
        watched.check()
        assert (out == inputs).all()
        with pytest.raises(DoesNotCompile):
            compile_launch(_product, arguments, sizes, architecture)
