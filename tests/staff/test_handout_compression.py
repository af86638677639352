"""The numbers of the chapter on compression once more, by other words; its drawings."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F

from assignment.provided.models.toy import load_toy
from solutions.compression import awq, distillation, pruning, quantization
from tests.staff.authoring.source import ROOT
from tests.staff.test_handout import query
from tests.staff.test_handout_numbers import F_, D, H, L, N, S, V

SHORT = 576  # the width of SmolLM2
EIGHT = [1.2, -0.5, -4.3, 1.2, -3.1, 0.8, 2.4, 5.4]


@pytest.fixture(scope="module")
def facts():
    [facts] = query("facts")
    return facts


# --- bytes ---------------------------------------------------------------------------------------


def test_bytes_of_a_step(facts):
    """Every matrix by itself: linear layers, both tables, keys and values."""
    linear_weights = L * (4 * D * N * H + 3 * D * F_)
    tables, kv_numbers = 2 * V * D, 2 * L * N * H * S
    eight, four, cache = (
        Fraction(8 * D + 16, D),
        Fraction(128 * 4 + 20, 128),
        Fraction(8 * H + 16, H),
    )
    kinds = ((16, 16), (eight, 16), (four, 16), (16, cache), (eight, cache), (four, cache))
    for batch, row in zip((1, 64), facts["compressed"], strict=True):
        for (weight, kv), stated in zip(kinds, row, strict=True):
            bits = linear_weights * weight + 16 * tables + batch * kv_numbers * kv
            assert stated == pytest.approx(float(bits / 8), rel=1e-12)


def test_bits_of_a_weight(facts):
    """As `bits_per_weight`, and counted in a row that is laid out."""
    kinds = ((8, None, 16, 0), (4, 32, 16, 4), (4, 64, 16, 4), (4, 128, 16, 4), (4, None, 16, 4),
             (3, 128, 16, 3), (8, None, 32, 0), (4, 128, 32, 4))  # fmt: skip
    for (bits, group, scale, zero), row in zip(kinds, facts["row-bits"], strict=True):
        for columns, stated in zip((D, SHORT), row, strict=True):
            starts = range(0, columns, group or columns)
            zeros = sum(zero for _ in starts)
            if (bits, scale) == (4, 32):  # as QuantizedLinear: eight to a word, the last not full
                zeros = 32 * len(range(0, len(starts), 8))
            laid_out = columns * bits + scale * len(starts) + zeros
            assert stated == pytest.approx(laid_out / columns, rel=1e-12)
            if zeros == zero * len(starts):
                assert stated == pytest.approx(
                    quantization.bits_per_weight(columns, bits, group or columns, scale, zero)
                )
    assert round(facts["row-bits"][-1][1], 3) == 4.333


def test_a_layer_keeps_the_bytes_that_the_table_says(facts):
    for row, (bits, per) in zip(facts["row-bits"][-2:], ((8, "row"), (4, 128)), strict=True):
        for columns, stated in zip((D, SHORT), row, strict=True):
            layer = quantization.QuantizedLinear(torch.randn(3, columns), bits, per)
            kept = sum(tensor.nbytes for tensor in layer.state_dict().values())
            assert 8 * kept / (3 * columns) == pytest.approx(stated)


# --- grids ---------------------------------------------------------------------------------------


def test_eight_numbers_and_an_outlier(facts):
    calm, upset = facts["rounded"]
    for stated, values in ((calm, EIGHT), (upset, [*EIGHT[:7], 60.0])):
        quantized = quantization.quantize(torch.tensor([values]), 8, "row")
        assert stated["codes"] == quantized.codes[0].tolist()
        assert stated["per-unit"] == pytest.approx(127 / max(map(abs, values)), rel=1e-12)
        exact = [Fraction(str(x)) for x in values]
        step = max(exact) / 127
        off = [abs(x - c * step) for x, c in zip(exact, stated["codes"], strict=True)]
        assert stated["error"] == pytest.approx(float(max(off[:7])), rel=1e-9)
    assert calm["codes"] == [28, -12, -101, 28, -73, 19, 56, 127]
    assert upset["codes"] == [3, -1, -9, 3, -7, 2, 5, 127]
    assert (round(calm["error"], 4), round(upset["error"], 3)) == (0.0189, 0.217)


def test_grids_of_the_picture_are_the_references():
    [grids] = query("grids")
    x = torch.tensor([grids["values"]])
    symmetric = quantization.quantize(x, 4, "row")
    assert grids["symmetric"]["codes"] == symmetric.codes[0].tolist()
    assert grids["symmetric"]["scale"] == pytest.approx(symmetric.scale.item())
    for name, values in (("shifted", grids["values"]), ("wide", grids["high-only"])):
        shifted = quantization.quantize(torch.tensor([values]), 4, "row", symmetric=False)
        assert grids[name]["codes"] == shifted.codes[0].tolist()
        assert grids[name]["zero"] == shifted.zero_point.item()
        back = quantization.dequantize(shifted)[0].tolist()
        assert grids[name]["back"] == pytest.approx(back)
    # What the box says of a range without 0: the codes begin at the end of the range.
    step = (0.7 - 0.5) / 15
    assert grids["narrow"]["back"] == pytest.approx([15 * step] * 4)


def test_a_scale_floor_of_bfloat16_ruins_small_weights():
    floor = torch.finfo(torch.bfloat16).eps
    assert floor == 2**-7 and {round(x / floor) for x in (0.003, 0.01, -0.01, 0.001)} == {0, 1, -1}
    assert pytest.approx(3) == 30_000 * 1e-4


def test_the_packed_word(facts):
    word = quantization.pack_int4(torch.arange(1, 9, dtype=torch.uint8))
    assert facts["packed"] == word.item() == int("87654321", 16) - 2**32


def test_floats_of_eight_bits(facts):
    [values] = query("fp8")
    for name, mantissa, dtype, stated in zip(
        ("e4m3", "e5m2"),
        (3, 2),
        (torch.float8_e4m3fn, torch.float8_e5m2),
        facts["fp8"],
        strict=True,
    ):
        every = torch.arange(128, dtype=torch.uint8).view(dtype).float()
        finite = every[every.isfinite()].tolist()
        assert values[name] == finite
        info = torch.finfo(dtype)
        assert stated == {
            "largest": info.max, "normal": info.smallest_normal, "subnormal": finite[1],
        }  # fmt: skip
        normal = [x for x in finite if x >= info.smallest_normal]
        furthest = max((b - a) / 2 / a for a, b in itertools.pairwise(normal))
        assert furthest == 2 ** -(mantissa + 1)
        assert len([x for x in finite if 1 <= x < 2]) == len([x for x in finite if 2 <= x < 4])
    assert facts["fp8"][0]["largest"] == 448 and torch.finfo(torch.float8_e4m3fnuz).max == 240
    assert torch.tensor(500.0).to(torch.float8_e4m3fn).float().item() in (448.0, math.nan)
    assert not torch.tensor(70_000.0).to(torch.float8_e5m2).float().isfinite()


# --- LLM.int8() ----------------------------------------------------------------------------------


def test_how_long_a_sum_of_products_may_be(facts):
    """The first number of terms whose sum a format has not, in the format itself."""
    half, single, whole = facts["sums-pass"]
    square = 127 * 127
    assert torch.tensor(half * square).half().isinf()
    assert torch.tensor((half - 1) * square).half().isfinite()
    # Between two floats lies a whole number that is a sum of so many products, and of no fewer.
    assert (single - 1) * square <= 2**24 < single * square
    assert torch.tensor(2**24 + 1).float().item() != 2**24 + 1
    assert (whole - 1) * square <= torch.iinfo(torch.int32).max < whole * square
    assert torch.tensor(4096 * 5.9 * 127).half().isinf()


# --- AWQ -----------------------------------------------------------------------------------------


def test_error_of_a_scaled_channel(facts):
    assert facts["salient-error"] == pytest.approx(1.038 / 2) and round(1.038 / 2, 3) == 0.519


def test_the_curve_over_alpha():
    """By the reference, on inputs of one channel each."""
    [about] = query("awq")
    weight = torch.tensor(about["weights"])
    magnitude = torch.ones(weight.shape[1])
    magnitude[about["large"]] = about["times"]
    wrong = magnitude.roll(15)
    assert {5, 6}.isdisjoint((wrong > 1).nonzero().flatten().tolist())

    def error(scale, magnitude=magnitude):
        return awq.output_error(weight, torch.diag(magnitude), scale, 4, weight.shape[1])

    whole = error(torch.ones_like(magnitude))
    few = torch.where(magnitude > 1, magnitude, 0)
    for step, row in enumerate(about["curve"]):
        scale = awq.scale_of(magnitude, step / 20)
        assert row["all"] == pytest.approx(error(scale) / whole, rel=1e-3)
        assert row["large"] == pytest.approx(error(scale, few) / whole, rel=1e-3)
        assert row["large"] + row["others"] == pytest.approx(row["all"])
        by_wrong = error(awq.scale_of(wrong, step / 20)) / whole
        assert row["wrong"] == pytest.approx(by_wrong, rel=1e-3)
    _, alpha = awq.search_scale([weight], torch.diag(magnitude), 4, weight.shape[1], magnitude)
    least = min(about["curve"], key=lambda row: row["all"])
    assert about["curve"][round(20 * alpha)] == least
    assert all(row["wrong"] >= 1 - 1e-9 for row in about["curve"])


# --- pruning -------------------------------------------------------------------------------------


def test_configs_of_half_the_toy(facts):
    """Every one of the grid is built, and its parameters counted; the toy's students are these."""
    target = load_toy("target")
    config, whole = target.config, sum(p.numel() for p in target.parameters())
    sizes = {"num_layers": (6, 5, 4, 3), "num_kv_heads": (2, 1),
             "d_ff": (352, 288, 224, 192, 128), "d_model": (192, 176, 160, 144)}  # fmt: skip
    found = pruning.search_configs(config, whole // 2, **sizes)
    built = [sum(p.numel() for p in type(target)(c).parameters()) for c in found]
    assert built == sorted(built, reverse=True) and whole == 1_933_056
    stated = [[asdict(c)[name] for name in sizes] for c in found]
    assert facts["half-toys"] == [[*s, n] for s, n in zip(stated, built, strict=True)]
    tried = json.loads((ROOT / "notebooks/distilling.json").read_text(encoding="utf-8"))["sizes"]
    trained = [[one["config"][name] for name in sizes] for one in tried]
    assert sorted(trained) == sorted(stated)
    losses = [one["after"] for one in tried if one["after"] is not None]
    assert losses == sorted(losses) and losses == [one["after"] for one in tried[: len(losses)]]


# --- distillation --------------------------------------------------------------------------------


def test_gradients_over_temperature():
    [about] = query("kd")
    teacher, student = torch.tensor(about["teacher"]), torch.tensor(about["student"])
    for temperature, stated in zip((1, 2, 4, 8, 16), about["gradients"], strict=True):
        u = student.double().clone().requires_grad_()
        p = (teacher.double() / temperature).softmax(0)
        F.kl_div((u / temperature).log_softmax(0), p, reduction="sum").backward()
        assert stated == pytest.approx(u.grad.norm().item(), rel=1e-9)
        v = student.clone().requires_grad_()
        distillation.kd_loss(v[None, None], teacher[None, None], temperature).backward()
        assert temperature**2 * stated == pytest.approx(v.grad.norm().item(), rel=1e-3)
    loss = distillation.kd_loss(student[None, None], teacher[None, None])
    assert about["divergence"] == pytest.approx(loss.item(), rel=1e-4)
    gap = student - teacher
    assert about["limit"] == pytest.approx(((gap - gap.mean()) / 5).norm().item(), rel=1e-6)
    assert about["gradients"][-1] * 16**2 == pytest.approx(about["limit"], rel=0.1)
    assert about["gradients"][0] < 0.05 < about["gradients"][1]


def test_torch_says_that_its_mean_is_no_mean_over_tokens():
    logits, law = torch.zeros(2, 5), torch.full((2, 5), 0.2)
    with pytest.warns(UserWarning, match="batchmean"):
        F.kl_div(logits.log_softmax(-1), law, reduction="mean")


def test_what_is_said_of_the_toy_students():
    """Pruned is far ahead, and the teacher helps either way: no two intervals touch, or the
    difference of pairs excludes zero."""
    ways = json.loads((ROOT / "notebooks/distilling.json").read_text(encoding="utf-8"))["ways"]
    pruned, on_text = ways["pruned, distilled"], ways["pruned, on tokens"]
    scratch = ways["from scratch, distilled"]
    assert pruned["over_grammar"]["high"] < on_text["over_grammar"]["low"]
    assert on_text["over_grammar"]["high"] < scratch["over_grammar"]["low"] / 3
    assert scratch["minus_baseline"]["high"] < 0


# --- SmolLM2 -------------------------------------------------------------------------------------


def test_intervals_of_what_smollm2_loses():
    """Student's t of the differences, window by window."""
    [stated] = query("smollm2-lost")
    text = (ROOT / "notebooks/smollm2_compression.json").read_text(encoding="utf-8")
    rows = json.loads(text)["ways"]
    windows = {row["way"]: torch.tensor(row["windows"], dtype=torch.float64) for row in rows}
    plain = windows.pop("float32")
    factor = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571}[len(plain) - 1]
    assert stated.keys() == windows.keys()
    for way, after in windows.items():
        lost = after - plain
        half = factor * lost.std().item() / len(plain) ** 0.5
        found = stated[way]
        assert found["mean"] == pytest.approx(lost.mean().item(), rel=1e-9)
        assert (found["high"] - found["low"]) / 2 == pytest.approx(half, rel=2e-3)
