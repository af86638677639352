"""Latent decode, 4-bit weights, linear attention, rejection sampling: their numbers once more."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from assignment.provided.lab.kernel import GPUS, lab, predict
from assignment.provided.lab.kernel.compiled import SM90, compile_launch
from solutions.compression.quantization import QuantizedLinear
from solutions.kernels import chunked_linear_attention as linear
from solutions.kernels import int4_matmul as int4
from solutions.kernels import latent_decode as latent
from tests.staff.test_handout import query
from tests.staff.test_handout_kernels import launch

GPU = GPUS["H100"]
LINE = GPU.flops_per_second / GPU.bandwidth
C, R = 512, 64  # DeepSeek-V2
OUTPUTS, INPUTS = 13_824, 5120  # Llama-2-13B
DRAFTED, ACCEPTED, VOCAB = 4, 0.8, 32_000


def numbers(label: str):
    [found] = query(label)
    return found


def arithmetic_seconds(dtype: str, flops: float) -> float:
    return flops / (GPU.fp32_flops_per_second if dtype == "fp32" else GPU.dot_rate(dtype))


# --- latent decode -------------------------------------------------------------------------------


def latent_launches(heads: int, tokens: int, splits: int) -> list:
    """Both kernels, 16 or 32 heads a program."""
    rows = min(heads, 32)
    share, width = tokens // splits, C + R
    results = rows * 2 * C if splits == 1 else rows * (4 * C + 4)
    each = 2 * width * (share + rows) + results
    flops = rows * share * (2 * width + 2 * C)
    first = launch(heads // rows * splits, each, flops)
    if splits == 1:
        return [first]
    return [first, launch(heads, splits * (4 * C + 4) + 2 * C)]


def test_heads_and_what_they_do_with_a_row():
    about = numbers("latent-decode")
    for heads, limit, registers in zip(
        (16, 32, 64, 128), about["limits"], about["registers"], strict=True
    ):
        flops = heads * ((C + R) * 2 + C * 2)
        assert limit == pytest.approx(flops / (2 * C + 2 * R))
        assert registers == [heads * C / 128, heads * C / 256]
    assert 0.8 * LINE < about["limits"][-1] < LINE


def test_a_split_as_tokens():
    about = numbers("latent-decode")
    for heads, tokens in zip((16, 128), about["part-tokens"], strict=True):
        one = heads * (C * 4 + 4)  # means, and the logarithm of a sum
        assert tokens == pytest.approx((one + one) / ((C + R) * 2))
    assert about["grouped"] == pytest.approx(2 * 32 * 129 * 4 / (8 * 128 * 2 * 2))


def test_predicted_times_of_latent_splits():
    for rows in numbers("latent-decode")["splits"]:
        for row in rows:
            launches = latent_launches(row["N"], 8192, row["splits"])
            assert row["programs"] == launches[0].programs
            seconds = predict(launches, GPU).seconds
            assert row["seconds"] == pytest.approx(seconds, rel=1e-9)
            latents = max(1, row["N"] // 32) * 8192 * (C + R) * 2 / GPU.bandwidth
            assert row["ratio"] == pytest.approx(seconds / latents, rel=1e-9)
        best = min(rows, key=lambda row: row["seconds"])
        assert best["programs"] == 64  # as the text says: hardly more than use all of the bandwidth


@pytest.mark.parametrize("heads, splits", [(16, 1), (16, 4), (64, 2)])
def test_the_formula_describes_the_reference(heads, splits):
    tokens = 256
    queries, turned = torch.randn(1, heads, C).half(), torch.randn(1, heads, R).half()
    cache = torch.randn(16, 16, C + R).half()
    tables = torch.randperm(16)[None].int()
    with lab() as seen:
        latent.latent_decode(
            queries, turned, cache, tables, torch.tensor([tokens]).int(), tokens, 0.1, splits
        )
    [read, *_] = seen.launches
    assert read.loaded["cache"].requested == math.ceil(heads / 32) * tokens * 2 * (C + R)
    by_formula = predict(latent_launches(heads, tokens, splits), GPU).seconds
    assert by_formula == pytest.approx(predict(seen.launches, GPU).seconds, rel=0.03)


def latent_report(rows: int, warps: int):
    heads, sizes = 128, {"HEADS": 128, "LATENT": C, "ROPE": R, "BLOCK": 16, "TILE": 32}
    half, ints = {"dtype": torch.float16}, {"dtype": torch.int32}
    tensors = (
        torch.empty(1, heads, C, **half), torch.empty(1, heads, R, **half),
        torch.empty(8, 16, C + R, **half), torch.empty(1, 8, **ints), torch.empty(1, **ints),
        torch.empty(1, 4, heads, C), torch.empty(1, 4, heads),
    )  # fmt: skip
    sizes |= {"ROWS": rows, "COLUMNS": C, "ROPE_COLUMNS": R, "num_warps": warps}
    return compile_launch(latent._split_kernel, (*tensors, 0.1, 8, 4), sizes, SM90)


def test_how_many_heads_fit():
    well, only_just = (latent_report(rows, 8) for rows in (32, 64))
    assert well.spilled == 0 and well.registers < 200 < only_just.registers
    assert well.shared >= 2 * 32 * (C + R) * 2  # the queries and a tile of latents
    assert latent.HEADS_TOGETHER == 32


# --- 4-bit weights -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weight_bytes():
    """A weight's, as a layer keeps it."""
    layer = QuantizedLinear(torch.randn(2, INPUTS), 4, 128)
    return sum(buffer.nbytes for buffer in layer.buffers()) / (2 * INPUTS)


def product_seconds(rows: int, weight: float) -> tuple[float, float]:
    """(arithmetic, bytes): everything is moved once."""
    moved = OUTPUTS * INPUTS * weight + 2 * rows * INPUTS + 2 * rows * OUTPUTS
    flops = 2 * rows * OUTPUTS * INPUTS
    return arithmetic_seconds("fp16", flops), moved / GPU.bandwidth


def test_what_is_asked_for_a_weight(weight_bytes):
    asked = numbers("int4")["asked"]
    assert asked[0] == pytest.approx(weight_bytes, rel=1e-12)
    words = torch.empty(INPUTS // 8, dtype=torch.int32).nbytes / INPUTS
    both = 4 + 4  # float32, int32
    assert asked[1:3] == pytest.approx([words + both / 8, words + both], rel=1e-12)
    assert asked[3:] == pytest.approx([weight_bytes + 4, 2], rel=1e-12)


def test_scales_and_sectors(monkeypatch):
    """A column of a matrix touches a sector a row, or all of its sectors if rows are short."""
    one, eight = numbers("int4")["sectors"]
    scales, words = min(32, 4 * 40), min(32, 4 * 5)  # 40 groups a row
    assert one == pytest.approx(1 / 2 + (scales + words) / 128)
    assert eight == pytest.approx(1 / 2 + (scales + words) / (8 * 128))
    monkeypatch.setattr(int4, "_enough_splits", lambda *_: 1)
    layer = QuantizedLinear(torch.randn(128, INPUTS), 4, 128)
    buffers = layer.codes, layer.scale, layer.zero_point
    with lab() as seen:
        int4.int4_matmul(torch.randn(1, INPUTS).half(), *buffers, 128)
    loaded = seen.launches[0].loaded
    sectors = sum(loaded[name].sectors for name in ("packed", "scales", "zero_points"))
    assert sectors * 32 / (128 * INPUTS) == pytest.approx(eight, rel=0.01)


def test_what_four_bits_gain(weight_bytes):
    about = numbers("int4")
    for rows, gain in zip((1, 16, 64, 128, 256, 512), about["gain"], strict=True):
        wide, narrow = (max(product_seconds(rows, weight)) for weight in (2, weight_bytes))
        assert gain == pytest.approx(wide / narrow, rel=1e-9)
    assert about["gain"][-1] == 1
    for weight, first in zip((2, weight_bytes), about["bound"], strict=True):
        for rows, is_bound in ((first - 1, False), (first, True)):
            arithmetic, moving = product_seconds(rows, weight)
            assert (arithmetic >= moving) is is_bound


def test_what_turning_back_takes():
    per_weight = arithmetic_seconds("fp32", 2)
    products = arithmetic_seconds("fp16", 2 * 64)
    assert numbers("int4")["turned"] == pytest.approx(per_weight / products)
    assert per_weight > arithmetic_seconds("fp16", 2)  # of a single row
    assert per_weight < 0.535 / GPU.bandwidth


def test_the_sign_bit_and_the_mask():
    word = torch.tensor(-(2**31) + 5, dtype=torch.int32)  # code 7 is 8, code 0 is 5
    assert [int(word >> 4 * j & 15) for j in range(8)] == [5, 0, 0, 0, 0, 0, 0, 8]
    assert int(word >> 28) == -8 and int(word // 2**28) != 8
    positive = torch.tensor(0x7654_3210, dtype=torch.int32)
    assert [int(positive >> 4 * j) == j for j in range(8)] == [False] * 7 + [True]


# --- linear attention ----------------------------------------------------------------------------


def test_the_example_by_chunks():
    about = numbers("by-chunks")
    decay, q, k, v = (
        torch.tensor(about["example"][name], dtype=torch.float64)
        for name in ("decay", "q", "k", "v")
    )
    state, states, outs = about["example"]["state"], [], []
    for t in range(4):
        state = float(decay[t]) * state + float(k[t] * v[t])
        states.append(state)
        outs.append(float(q[t]) * state)
    assert [row["state"] for row in about["token"]] == states
    assert [row["out"] for row in about["token"]] == [row["out"] for row in about["chunk"]] == outs

    # A chunk is a lower triangle of products of gates.
    state = about["example"]["state"]
    for first in (0, 2):
        a, b = decay[first].item(), decay[first + 1].item()
        between = torch.tensor([[1, 0], [b, 1]], dtype=torch.float64)
        kept = torch.tensor([a, a * b], dtype=torch.float64)
        here = slice(first, first + 2)
        inside = (q[here, None] * k[here] * between) @ v[here]
        rows = about["chunk"][here]
        assert [row["kept"] for row in rows] == kept.tolist()
        assert [row["inside"] for row in rows] == inside.tolist()
        assert [row["from-state"] for row in rows] == (kept * q[here] * state).tolist()
        state = float(kept[1] * state + (between[1] * k[here]) @ v[here])
        assert rows[1]["state"] == state == states[first + 1]


def test_flops_of_a_token():
    """By the recurrence, counted step by step; in chunks, counted by the lab."""
    about = numbers("linear")
    d = e = 128
    assert about["recurrent"] == d * e + 2 * d * e + 2 * d * e  # fade; add k vᵀ; read
    for chunk, stated in zip((16, 32, 64, 256), about["chunks"], strict=True):
        of_columns = [2 * chunk * d + 2 * chunk * 64 + 2 * d * 64 + 2 * d * 64 for _ in range(2)]
        assert stated == sum(of_columns)
    tokens, heads = 128, 1
    q, k, v = (torch.randn(tokens, heads, 128).half() for _ in range(3))
    gates, starts = torch.full((tokens, heads), -0.1), torch.tensor([0, tokens]).int()
    with lab() as seen:
        linear.chunked_linear_attention(
            q, k, v, gates, torch.zeros(1, heads, d, e), starts, tokens, 0.1
        )
    assert sum(seen.launches[0].dot_flops.values()) == tokens * about["chunks"][1]
    assert (linear.CHUNK, linear.TILE) == (about["chunk"], 64) == (32, 64)
    moved = sum(one.bytes_loaded + one.bytes_stored for one in seen.launches)
    assert moved == pytest.approx(about["state"] + tokens * about["token"], rel=1e-3)


def test_bytes_and_times_of_linear_attention():
    about = numbers("linear")
    d = e = 128
    assert about["state"] == 2 * torch.empty(d, e).nbytes
    per_tile = 2 * torch.empty(d).half().nbytes + 4
    assert about["token"] == 2 * per_tile + 2 * torch.empty(e).half().nbytes
    assert about["tokens"] * 2 * (d + e) == about["state"]
    recurrent, *chunks = about["seconds"]
    assert recurrent == pytest.approx(arithmetic_seconds("fp32", about["recurrent"]))
    for flops, stated in zip(about["chunks"], chunks, strict=True):
        assert stated == pytest.approx(arithmetic_seconds("fp16", flops))
    moving = about["token"] / GPU.bandwidth
    assert all(seconds < moving < recurrent for seconds in chunks)


def test_exponents_of_float32():
    largest = numbers("linear")["exponent"]
    assert math.exp(largest) == pytest.approx(torch.finfo(torch.float32).max, rel=1e-6)
    token = math.floor(largest / 2) + 1
    powers = torch.tensor([2.0 * (token - 1), 2.0 * token]).exp()
    assert powers.isfinite().tolist() == [True, False] and (powers[1] * 0).isnan()
    sums = torch.tensor([-1.0, -math.inf, -0.5]).cumsum(0)
    assert (sums[2] - sums[1]).isnan() and sums[2] - sums[0] == -math.inf


# --- rejection sampling --------------------------------------------------------------------------


def test_rows_that_a_round_draws_from():
    about = numbers("rejection")
    drawn = sum(ACCEPTED**i * (1 - ACCEPTED) * 2 for i in range(DRAFTED)) + ACCEPTED**DRAFTED
    assert about["rows"] == pytest.approx([drawn, DRAFTED + DRAFTED + 1])
    for rows, seconds in zip((2, 9), about["seconds"], strict=True):
        assert seconds == pytest.approx(rows * VOCAB * 4 / (GPU.bytes_per_clock * GPU.clock))
    assert about["held"] == [4 * 128_256, 4 * SM90.registers]


def test_a_draw_by_tiles():
    about = numbers("rejection")
    p, q = (torch.tensor(about["tiled"][name]) for name in ("p", "q"))
    of, draw = about["tiled"]["of"], about["draw"]
    assert p.sum() == q.sum() == of
    weights = F.relu(q - p)
    assert draw["weights"] == weights.tolist() and draw["total"] == weights.sum()
    assert draw["sums"] == weights.view(-1, 4).sum(1).tolist()
    target = about["tiled"]["uniform"] * int(weights.sum())
    assert draw["target"] == target
    token = int(torch.searchsorted(weights.cumsum(0).double(), target, right=True))
    assert draw["token"] == token and draw["tile"] == token // 4 and weights[token] > 0
    assert draw["before"] == weights[: token // 4 * 4].sum()


def test_sums_in_another_order_differ():
    """Why the last token that weighs something has to be kept in mind."""
    rows = torch.rand(200, 1024, generator=torch.Generator().manual_seed(0))
    tree, one_by_one = rows.sum(1), rows.cumsum(1)[:, -1]
    highest = torch.tensor(1 - 2.0**-24)
    assert highest < 1 and (tree * highest > one_by_one).any()
