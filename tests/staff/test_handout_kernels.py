"""The chapter on kernels once more, by other words; what it says of the lab and the grader."""

from __future__ import annotations

import json
import re

import pytest
import torch

from assignment.provided.lab.kernel import GPUS, Launch, Traffic, lab, predict
from assignment.provided.lab.kernel.compiled import SM90, DoesNotCompile, compile_launch
from solutions.kernels.paged_attention import paged_attention
from solutions.kernels.store_kv import store_kv
from tests.grading.kernels import grammar, running
from tests.staff.authoring import kernel_mistakes, kernel_runs
from tests.staff.authoring.source import ROOT
from tests.staff.test_handout import query, text_of

GPU = GPUS["H100"]
HEADS, KV_HEADS, WIDTH, LAYERS = 32, 8, 128, 32  # Llama 3 8B
SHAPES = {(1, 8192): (1, 2, 4, 8, 16, 32, 64, 128), (64, 1024): (1, 2, 4, 8, 16)}


@pytest.fixture(scope="module")
def facts():
    [facts] = query("facts")
    return facts


@pytest.fixture(scope="module")
def kept():
    return json.loads((ROOT / kernel_runs.FILE).read_text("utf-8"))


# --- the chip ------------------------------------------------------------------------------------


def test_the_chip_is_the_labs():
    [about] = query("kernel-roofline")
    gpu = about["gpu"]
    assert (gpu["multiprocessors"], gpu["clock"]) == (GPU.multiprocessors, GPU.clock)
    assert (gpu["flops"], gpu["bandwidth"]) == (GPU.chip.flops_per_second, GPU.chip.bandwidth)
    assert gpu["int8"] == GPU.int8_ops_per_second
    assert (gpu["fp32"], gpu["memory"]) == (GPU.fp32_flops_per_second, GPU.chip.memory)
    assert gpu["bytes-per-clock"] == GPU.bytes_per_clock
    assert (gpu["registers"], gpu["warps"]) == (SM90.registers, SM90.warps)
    assert gpu["shared"] * 1024 == SM90.shared_memory
    assert gpu["shared-of-a-program"] * 1024 == SM90.shared_memory_of_a_program


def test_multiprocessors_that_use_all_of_the_bandwidth(facts):
    def rate(multiprocessors):
        return multiprocessors * GPU.bytes_per_clock * GPU.clock

    enough = facts["enough-multiprocessors"]
    assert rate(enough - 1) < GPU.chip.bandwidth <= rate(enough)


# --- what the lab said ---------------------------------------------------------------------------


def test_what_is_shown_of_the_lab_is_current(capsys):
    assert kernel_runs.main(["--check"]) == 0, capsys.readouterr().out


def test_check_tells_what_is_stale(tmp_path, capsys, monkeypatch, kept):
    monkeypatch.setattr(kernel_runs, "reports", lambda: kept["compiled"])
    (tmp_path / "handout").mkdir()
    assert kernel_runs.main(["--check"], tmp_path) == 1
    (tmp_path / kernel_runs.FILE).write_text(json.dumps(kept | {"runs": {}}))
    assert kernel_runs.main(["--check"], tmp_path) == 1
    assert "out of date (runs): run `python -m" in capsys.readouterr().out
    assert kernel_runs.main([], tmp_path) == 0 and kernel_runs.main(["--check"], tmp_path) == 0


def test_bytes_of_the_softmaxes(facts):
    """Read and written once; read three times and written twice, and two numbers a row twice."""
    matrix = kernel_runs.ROWS * kernel_runs.COLUMNS * 4
    assert facts["lab-moved"] == [2 * matrix, 5 * matrix + 2 * 2 * kernel_runs.ROWS * 4]


def test_what_is_said_of_the_sums(kept):
    tidy, strewn = (kept["runs"][name][0] for name in ("add", "add_interleaved"))
    for one, other in zip(tidy["arguments"], strewn["arguments"], strict=True):
        assert one["requested"] == other["requested"] == one["unique"]
        assert other["sectors"] == other["requested"] // 4 == 8 * one["sectors"]
    assert "limited by one multiprocessor" in kept["shown"]["add"]
    assert "limited by memory" in kept["shown"]["add_interleaved"]


def test_kinds_of_faults(kept):
    for name, kind in (
        ("add_without_mask", "load out of bounds"),
        ("add_overlapping", "race"),
        ("add_to_nothing", "unwritten read"),
    ):
        assert kept["runs"][name][0]["faults"][0].startswith(f"{kind}: program (")
    assert kernel_runs.LENGTH == 4000 and kernel_runs.LENGTH % 256


def test_a_masked_zero_among_low_scores_leaves_a_row_of_zeros():
    row = torch.tensor([-250.0, -201.0, 0.0])  # the last one is masked, and holds 0
    powers = (row - row.max()).exp()
    assert (powers / powers.sum()).tolist() == [0, 0, 1]


# --- what the compiler said ----------------------------------------------------------------------


def test_what_is_said_of_the_compile_report(kept):
    narrow, wide, odd, strewn = kept["compiled"]["add"]
    assert wide["wide_loads"] == wide["loads"]
    assert [r["wide_loads"] for r in (narrow, odd, strewn)] == [0, 0, 0]
    softmax = {(r["columns"], r["num_warps"]): r for r in kept["compiled"]["softmax"]}
    assert softmax[1000, 4]["wide_loads"] == 0 < softmax[1024, 4]["wide_loads"]
    assert softmax[32_768, 4]["spilled"] and not softmax[32_768, 16]["spilled"]
    assert [r["spilled"] for (n, _), r in softmax.items() if n < 32_768] == [0] * 4
    assert softmax[32_768, 4]["registers"] == 255
    registers = [softmax[n, 4]["registers"] for n in (1024, 8192, 16_384, 32_768)]
    assert registers == sorted(registers)
    four, sixteen, more = (r["tensor_core"] for r in kept["compiled"]["scores"])
    assert four == sixteen == more // 2


def test_what_the_compiler_refuses_and_the_interpreter_does_not():
    thin = [torch.ones(16, 8).half(), torch.ones(64, 8).half(), torch.empty(16, 64)]
    for kernel, arguments in (
        (kernel_mistakes.scores, (*thin, 16, 64, 8)),
        (kernel_mistakes.changes_its_dtype, (torch.ones(3), torch.empty(1), 3)),
        (kernel_mistakes.takes_a_global, (torch.empty(1),)),
    ):
        with lab() as seen:
            kernel[(1,)](*arguments)
        seen.check()
        with pytest.raises(DoesNotCompile):
            compile_launch(kernel, arguments, {})


# --- time ----------------------------------------------------------------------------------------


def launch(programs: int, nbytes: float, flops: float = 0) -> Launch:
    """Equal programs that want whole sectors."""
    found = Launch("by hand", (programs, 1, 1), {}, 4)
    found.loaded["all"] = Traffic(1, programs * nbytes, programs * nbytes, programs * nbytes / 32)
    found.program_bytes, found.program_flops = [nbytes] * programs, [flops] * programs
    found.dot_flops, found.program_dot_flops = (
        {"fp16": programs * flops},
        {"fp16": [flops] * programs},
    )
    return found


def decode(requests: int, tokens: int, splits: int, again: int = 1) -> list[Launch]:
    """Both kernels; `again` programs in the place of one read the same keys and values."""
    group, share = HEADS // KV_HEADS, tokens // splits
    keys_and_values = 2 * share * WIDTH * 2
    queries = group * WIDTH * 2
    results = group * (WIDTH * 4 + 4) if splits > 1 else queries
    flops = 16 * share * WIDTH * 2 + 16 * WIDTH * share * 2
    each = keys_and_values + (queries + results) / again
    first = launch(again * requests * KV_HEADS * splits, each, flops)
    if splits == 1:
        return [first]
    return [first, launch(requests * HEADS, splits * (WIDTH * 4 + 4) + WIDTH * 2)]


def test_predicted_times_of_splits(facts):
    [shapes] = query("split-times")
    assert [(one["B"], one["S"]) for one in shapes] == list(SHAPES)
    for one, (shape, counts) in zip(shapes, SHAPES.items(), strict=True):
        ideal = shape[0] * shape[1] * 2 * KV_HEADS * WIDTH * 2 / GPU.chip.bandwidth
        assert [row["splits"] for row in one["rows"]] == list(counts)
        for row in one["rows"]:
            launches = decode(*shape, row["splits"])
            assert row["programs"] == launches[0].programs
            assert row["seconds"] == pytest.approx(predict(launches, GPU).seconds, rel=1e-9)
            assert row["ratio"] == pytest.approx(row["seconds"] / ideal, rel=1e-9)
            parts = shape[0] * HEADS * row["splits"] * (WIDTH * 4 + 4)
            assert row["partials"] == (parts if row["splits"] > 1 else 0)
    long, many = ([row["ratio"] for row in one["rows"]] for one in shapes)
    # As many as have the multiprocessors for all of the bandwidth are enough.
    fewest = SHAPES[1, 8192][long.index(min(long))]
    assert fewest * KV_HEADS >= facts["enough-multiprocessors"] > fewest // 2 * KV_HEADS
    assert many == sorted(many)
    programs = [shape[0] * KV_HEADS for shape in SHAPES]
    for splits, count in zip(facts["splits-for"], programs, strict=True):
        assert splits * count >= GPU.multiprocessors > (splits - 1) * count


def test_shares_of_a_request_in_splits():
    [stated] = query("uneven-splits")
    tokens, splits = stated["tokens"], stated["splits"]
    assert stated["share"] == len(range(0, tokens, splits))
    tiles = [range(tokens)[first : first + 64] for first in range(0, tokens, 64)]
    per_split = -(-len(tiles) // splits)
    assert stated["rounded"] == per_split * 64
    assert stated["busy"] == len([tiles[i] for i in range(0, len(tiles), per_split)])


def test_bytes_on_their_way():
    """By Little's law; half a tile of keys and values of 64 tokens, as the text says."""
    [clocks] = query("load-clocks")
    assert 2 * clocks * GPU.bytes_per_clock == 64 * 2 * WIDTH * 2


def test_the_formula_describes_a_real_kernel():
    """The reference in the lab: four heads on one, 1,024 tokens."""
    [stated] = query("small-decode")
    query_heads = torch.randn(1, 4, 128).half()
    k_cache, v_cache = (torch.randn(64, 16, 1, 128).half() for _ in range(2))
    tables = torch.randperm(64)[None].int()
    for row, splits in zip(stated, (1, 4), strict=True):
        with lab() as seen:
            paged_attention(
                query_heads, k_cache, v_cache, tables, torch.tensor([1024]).int(), 1024, 0.1,
                None, splits,
            )  # fmt: skip
        assert row["seconds"] == pytest.approx(predict(seen.launches, GPU).seconds, rel=0.03)


def busiest(run: dict) -> float:
    """Seconds of one of fewer programs than multiprocessors that are all limited by bytes."""
    assert run["programs"] < GPU.multiprocessors
    asked = sum(argument["requested"] for argument in run["arguments"])
    return asked / run["programs"] / (GPU.bytes_per_clock * GPU.clock)


def test_points_of_the_roofline(kept):
    [about] = query("kernel-roofline")
    vector, matrix = kernel_runs.LENGTH * 4, kernel_runs.ROWS * kernel_runs.COLUMNS * 4
    moved = {"add": 3 * vector, "softmax_in_three": 5 * matrix, "softmax": 2 * matrix}
    for stated, (name, nbytes) in zip(about["runs"], moved.items(), strict=True):
        launches = kept["runs"][name]
        flops = sum(one["flops"] for one in launches)
        assert stated["intensity"] == pytest.approx(flops / nbytes, rel=2e-3)
        seconds = sum(busiest(one) for one in launches)  # by the mean: the last tile is short
        assert stated["attained"] == pytest.approx(flops / seconds, rel=0.03)
        assert stated["attained"] < 0.7 * stated["intensity"] * GPU.chip.bandwidth
    assert about["intensities"] == [4, 1]  # by the group, by the query head
    useful = 8192 * HEADS * 2 * 2 * WIDTH
    for stated, (splits, again) in zip(about["attained"], ((1, 1), (16, 1), (16, 4)), strict=True):
        seconds = predict(decode(1, 8192, splits, again), GPU).seconds
        assert stated == pytest.approx(useful / seconds, rel=1e-9)


# --- writing and attending -----------------------------------------------------------------------


def test_where_32_bits_end():
    [stated] = query("int32-slots")
    for first, width in zip(stated, (1024, LAYERS * 1024), strict=True):
        slots = torch.tensor([first - 1, first], dtype=torch.int32)
        assert ((slots * width) >= 0).tolist() == [True, False]


def test_bytes_of_storing(facts):
    k, v = torch.randn(2, 256, KV_HEADS, WIDTH).half()
    caches = torch.zeros(2, 20, 16, KV_HEADS, WIDTH).half()
    with lab() as seen:
        store_kv(k, v, *caches, torch.randperm(320)[:256])
    [found] = seen.launches
    assert facts["store-bytes"] == found.bytes_loaded + found.bytes_stored


def test_tiles_and_splits_by_hand():
    [about] = query("tiled")
    scores, values = (
        torch.tensor(about[name], dtype=torch.float64) for name in ("scores", "values")
    )
    for tiles, (top, total, mean) in enumerate(about["after"], start=1):
        seen = scores[:tiles].flatten()
        assert top == seen.max().item()
        assert total == pytest.approx((seen - top).exp().sum().item(), rel=1e-12)
        assert mean == pytest.approx((seen.softmax(0) @ values[:tiles].flatten()).item(), rel=1e-12)
    log_sum, mean = about["alone"]
    assert log_sum == pytest.approx(scores[2].logsumexp(0).item(), rel=1e-12)
    assert mean == pytest.approx((scores[2].softmax(0) @ values[2]).item(), rel=1e-12)
    # Both splits together, weighted by their sums.
    first = scores[:2].flatten()
    sums = torch.stack([first.logsumexp(0), scores[2].logsumexp(0)])
    means = torch.tensor([about["after"][1][2], mean], dtype=torch.float64)
    assert about["after"][2][2] == pytest.approx((sums.softmax(0) @ means).item(), rel=1e-12)


def test_no_score_near_minus_300_has_a_weight():
    assert torch.tensor(-300.0).exp() == 0 < torch.tensor(-100.0).exp()


# --- what a kernel may contain -------------------------------------------------------------------


def test_what_is_said_of_the_grader():
    text = text_of("kernels")
    [listed] = re.findall(r"a few of Python's functions \(([^)]*)\)", text)
    assert set(re.findall(r"`(\w+)`", listed)) == grammar.BUILTINS
    assert f"at most {running.MOST_PROGRAMS:,} programs" in text
    for name in ("cdiv", "next_power_of_2"):
        assert f"`triton.{name}`" in text and grammar.is_of_the_language(f"triton.{name}")
