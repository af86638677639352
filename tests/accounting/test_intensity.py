"""accounting.intensity: FLOPs and bytes to the last one, and where compute begins to limit."""

from __future__ import annotations

import itertools
import math

import pytest

from assignment.provided.lab import CHIPS, Cost
from submission.accounting.intensity import (
    attention,
    intensity,
    latent_attention,
    limited_by,
    matmul,
    mlp,
    smallest_compute_limited,
)
from tests.accounting import oracles_intensity as oracles
from tests.accounting.oracles_numbers import assert_cost, assert_number
from tests.grading.closeness import assert_equal
from tests.grading.shapes import HEAD_RATIOS, around

H100 = CHIPS["H100"]
WIDTHS = pytest.mark.parametrize("bytes_per_number", [1, 4, 0.5])
HUGE = 10**7 + 19  # a product of three of its size is beyond what a float holds


def draw_sizes(draw, count: int, most: int = 7) -> list[int]:
    """Sizes from 1 on, all different: then one in the place of another shows."""
    return (1 + draw.permutation(most)[:count]).tolist()


def assert_costs(count, oracle, cases) -> None:
    """`count` gives what `oracle` does, for each case of arguments."""
    for case in cases:
        assert_cost(count(*case), oracle(*case), f"{oracle.__name__}{tuple(case)}")


@pytest.mark.group("matmul")
class TestMatmul:
    def test_flops_and_bytes(self, draw):
        assert_cost(matmul(2, 3, 5), Cost(60, 42, 20), "matmul(2, 3, 5)")
        cases = [draw_sizes(draw, 3) for _ in range(5)]
        assert_costs(matmul, oracles.matmul, [*cases, (1, 1, 1), (0, 3, 5), (4, 1, 2)])

    @WIDTHS
    def test_bytes_per_number(self, bytes_per_number):
        cases = [(3, 5, 1, bytes_per_number), (1, 6, 5, bytes_per_number)]
        assert_costs(matmul, oracles.matmul, cases)

    def test_large_counts_are_exact(self):
        rows, inner, columns = HUGE, HUGE + 1, HUGE + 3
        read, written = 2 * inner * (rows + columns), 2 * rows * columns
        expected = Cost(2 * rows * inner * columns, read, written)
        assert_cost(matmul(rows, inner, columns), expected, f"matmul{(rows, inner, columns)}")

    def test_one_weight_for_many_tokens(self):
        """With few rows, the intensity at 2 bytes is their number."""
        for tokens in (1, 8, 100):
            cost = matmul(tokens, 10**6, 10**6)
            got = cost.flops / (cost.bytes_read + cost.bytes_written)
            assert math.isclose(got, tokens, rel_tol=1e-3), f"expected about {tokens}, got {got}"

    def test_sizes_that_make_no_sense(self):
        assert_cost(matmul(2, 3, 5, 1), Cost(60, 21, 10), "matmul(2, 3, 5, 1)")
        for sizes in [(-1, 3, 5), (2, -3, 5), (2, 3, -5), (2, 3, 5, 0), (2, 3, 5, -2)]:
            with pytest.raises(ValueError):
                matmul(*sizes)


@pytest.mark.group("matmul")
class TestMlp:
    def test_flops_and_bytes(self, draw):
        assert_cost(mlp(2, 3, 5), Cost(180, 122, 32), "mlp(2, 3, 5)")
        cases = [draw_sizes(draw, 3) for _ in range(5)]
        assert_costs(mlp, oracles.mlp, [*cases, (1, 1, 1), (0, 3, 5), (4, 1, 2)])

    @WIDTHS
    def test_bytes_per_number(self, bytes_per_number):
        cases = [(3, 5, 1, bytes_per_number), (2, 6, 5, bytes_per_number)]
        assert_costs(mlp, oracles.mlp, cases)

    def test_large_counts_are_exact(self):
        tokens, d_model, d_ff = HUGE, HUGE + 1, HUGE + 3
        flops = 3 * 2 * tokens * d_model * d_ff
        written = 2 * tokens * (d_model + d_ff)
        expected = Cost(flops, written + 6 * d_model * d_ff, written)
        assert_cost(mlp(tokens, d_model, d_ff), expected, f"mlp{(tokens, d_model, d_ff)}")

    def test_llama_2_13b(self):
        for tokens, known in [(1, 0.99982), (64, 63.28), (256, 244.8), (295, 280.2)]:
            assert_known(mlp(tokens, 5120, 13824), known, f"mlp({tokens}, 5120, 13824)")


def assert_known(cost: Cost, known: float, what: str) -> None:
    """The cost's intensity is the known one, to all of its four or five digits."""
    got = cost.flops / (cost.bytes_read + cost.bytes_written)
    right = math.isclose(got, known, rel_tol=2e-4)
    assert right, f"intensity of {what}: expected {known}, got {got:.6g}"


@pytest.mark.group("attention")
class TestAttention:
    @pytest.mark.parametrize("heads, kv_heads", HEAD_RATIOS)
    def test_query_heads_multiply_kv_heads_are_read(self, draw, heads, kv_heads):
        batch, num_queries, num_keys, head_dim = draw_sizes(draw, 4, most=5)
        cases = [
            (batch + 1, num_queries, num_keys, heads, kv_heads, head_dim),
            (2, 1, 6, heads, kv_heads, 3),
            (3, 4, 2, heads, kv_heads, 5),
        ]
        assert_costs(attention, oracles.attention, cases)

    def test_only_visible_pairs_count(self):
        """Every T up to 5 on every S up to 5, also none; bytes are those without a mask."""
        sizes = itertools.product([1, 2, 3, 4, 5, 0], repeat=2)
        cases = [(2, *pair, 6, 2, 3, True) for pair in sizes]
        assert_costs(attention, oracles.attention, cases)

    def test_the_docstrings_example(self):
        full, causal = attention(2, 3, 5, 4, 2, 6), attention(2, 3, 5, 4, 2, 6, causal=True)
        assert_cost(full, Cost(2880, 768, 288), "attention(2, 3, 5, 4, 2, 6)")
        assert_cost(causal, Cost(2304, 768, 288), "attention(2, 3, 5, 4, 2, 6, causal=True)")

    @WIDTHS
    def test_bytes_per_number(self, bytes_per_number):
        cases = [(1, 3, 5, 3, 1, 5, causal, bytes_per_number) for causal in (False, True)]
        assert_costs(attention, oracles.attention, cases)

    @pytest.mark.parametrize("causal", [False, True])
    def test_large_counts_are_exact(self, causal):
        case = (HUGE, 1001, HUGE + 1, 30, 6, 10_007, causal)
        seen = [HUGE + 1 - 1001 + query + 1 if causal else HUGE + 1 for query in range(1001)]
        q, kv = HUGE * 30 * 1001 * 10_007, HUGE * 6 * (HUGE + 1) * 10_007
        expected = Cost(4 * HUGE * 30 * 10_007 * sum(seen), 2 * (q + 2 * kv), 2 * q)
        assert_cost(attention(*case), expected, f"attention{case}")

    def test_llama_2_13b(self):
        for case, known in [
            ((1, 1, 1024, 40, 40, 128), 0.99902),
            ((64, 1, 1024, 40, 40, 128), 0.99902),  # the batch changes nothing
            ((64, 1, 1024, 40, 8, 128), 4.976),
            ((64, 1, 1024, 40, 1, 128), 38.50),
            ((1, 5, 1024, 40, 40, 128), 4.976),  # four drafts verified
            ((1, 1024, 1024, 40, 40, 128), 512.0),
            ((1, 1024, 1024, 40, 40, 128, True), 256.25),
        ]:
            assert_known(attention(*case), known, f"attention{case}")

    def test_heads_that_do_not_divide(self):
        assert_costs(attention, oracles.attention, [(2, 3, 5, 6, 3, 4)])
        for heads, kv_heads in [(4, 3), (2, 4), (4, 0)]:
            with pytest.raises(ValueError):
                attention(2, 3, 5, heads, kv_heads, 6)


@pytest.mark.group("latent")
class TestLatentAttention:
    def test_flops_and_bytes(self, draw):
        example = latent_attention(2, 3, 5, 4, 6, 2)
        assert_cost(example, Cost(3360, 544, 288), "latent_attention(2, 3, 5, 4, 6, 2)")
        cases = [draw_sizes(draw, 6, most=6) for _ in range(3)]
        assert_costs(latent_attention, oracles.latent_attention, [*cases, (3, 1, 7, 5, 4, 2)])

    def test_only_visible_pairs_count(self):
        sizes = itertools.product([1, 2, 3, 4, 0], repeat=2)
        cases = [(2, *pair, 3, 5, 2, True) for pair in sizes]
        assert_costs(latent_attention, oracles.latent_attention, cases)

    @WIDTHS
    def test_bytes_per_number(self, bytes_per_number):
        cases = [(1, 3, 5, 3, 5, 2, causal, bytes_per_number) for causal in (False, True)]
        assert_costs(latent_attention, oracles.latent_attention, cases)

    def test_large_counts_are_exact(self):
        latents, queries = HUGE * (HUGE + 1) * 576, HUGE * 128 * 3 * 576
        flops = 2 * HUGE * 128 * 3 * (HUGE + 1) * (512 + 64 + 512)
        expected = Cost(flops, 2 * (latents + queries), 2 * HUGE * 128 * 3 * 512)
        case = (HUGE, 3, HUGE + 1, 128, 512, 64)
        assert_cost(latent_attention(*case), expected, f"latent_attention{case}")

    def test_deepseek_v2(self):
        for batch, num_keys, known in [(1, 1024, 195.6), (64, 1024, 195.6), (2, 10**7, 241.8)]:
            case = (batch, 1, num_keys, 128, 512, 64)
            assert_known(latent_attention(*case), known, f"latent_attention{case}")


@pytest.mark.group("bound")
class TestIntensity:
    def test_flops_over_all_bytes(self, draw):
        cases = [(60, 42, 20), (7, 0, 2), (7, 4, 0), (0, 3, 5), (1, 0.5, 2.5)]
        for flops, read, written in [*cases, draw.integers(1, 2**40, 3).tolist()]:
            cost = Cost(flops, read, written)
            assert_number(intensity(cost), flops / (read + written), f"intensity of {cost}")

    def test_no_byte_moved(self):
        assert_number(intensity(Cost(6, 1, 1)), 3.0, "intensity")
        for cost in (Cost(), Cost(flops=5)):
            with pytest.raises(ValueError):
                intensity(cost)


@pytest.mark.group("bound")
class TestLimitedBy:
    def test_on_both_sides_of_every_chips_ridge(self):
        for chip in CHIPS.values():
            ridge = chip.flops_per_second / chip.bandwidth
            for ratio, limit in [(0.99, "memory"), (1.01, "compute")]:
                cost = Cost(int(ratio * ridge * 10**9), 7 * 10**8, 3 * 10**8)
                assert_equal(limited_by(cost, chip), limit, what=f"{cost} on {chip.name}")

    def test_equal_is_compute(self):
        for flops in around(256 * 12):
            expected = "memory" if flops < 256 * 12 else "compute"
            what = f"{flops} FLOPs and 12 bytes where the chip does 256 a byte"
            assert_equal(limited_by(Cost(flops, 4, 8), oracles.EVEN), expected, what=what)


def assert_found(cost_of, chip, expected, *, largest=None, what="") -> None:
    """The search finds the expected n, in as many calls as are allowed."""
    counted = oracles.Counted(cost_of, largest or 1_048_576)
    options = {} if largest is None else {"largest": largest}
    assert_equal(smallest_compute_limited(counted, chip, **options), expected, what=what)


def assert_threshold_found(threshold: int, largest: int | None = None) -> None:
    """Work that is limited by compute from `threshold` on, if that is not past the largest."""
    expected = threshold if threshold <= (largest or 1_048_576) else None
    what = f"compute-limited from {threshold} on, largest {largest or 'as it is by default'}"
    cost_of = oracles.rising(threshold)
    assert_found(cost_of, oracles.EVEN, expected, largest=largest, what=what)


@pytest.mark.group("bound")
class TestSmallestComputeLimited:
    @pytest.mark.parametrize("largest", [1, 2, 3, 4, 5, 9, 16])
    def test_every_threshold(self, largest):
        """From 1, where all is limited by compute, to one past the largest, where nothing is."""
        for threshold in range(1, largest + 2):
            assert_threshold_found(threshold, largest)

    def test_few_calls(self, draw):
        thresholds = [1, 2, 1023, 1024, 1025, 999_999, 10**6, 10**6 + 1]
        thresholds += draw.integers(1, 10**6, 6).tolist()
        for threshold in thresholds:
            assert_threshold_found(threshold, 10**6)

    def test_default_largest(self):
        for threshold in around(1_048_576):
            assert_threshold_found(threshold)

    def test_an_intensity_that_saturates_below_the_ridge(self):
        """A decode step of multi-head attention on n tokens: n / (n + 1) never comes to 295."""
        assert_found(lambda n: Cost(4 * n, 4 * n + 2, 2), H100, None)

    def test_llama_2_13b_on_an_h100(self):
        def prompt(n):  # attention of n queries on n keys, 40 heads of 128
            return Cost(4 * n * n * 5120, 2 * 3 * n * 5120, 2 * n * 5120)

        def causal_prompt(n):
            return Cost(2 * n * (n + 1) * 5120, 2 * 3 * n * 5120, 2 * n * 5120)

        def mlp_of(n):
            weights = 3 * 5120 * 13824
            moved = n * 5120 + n * 13824
            return Cost(2 * n * weights, 2 * (moved + weights), 2 * moved)

        for cost_of, known in [(mlp_of, 312), (prompt, 591), (causal_prompt, 1180)]:
            assert_found(cost_of, H100, known, what=cost_of.__name__)

    def test_another_chip_has_another_threshold(self):
        for chip in CHIPS.values():
            expected = math.ceil(chip.flops_per_second / chip.bandwidth)
            assert_found(lambda n: Cost(n, 1, 0), chip, expected, what=chip.name)

    def test_nothing_to_search(self):
        assert_threshold_found(2, 3)
        for largest in (0, -5):
            with pytest.raises(ValueError):
                smallest_compute_limited(oracles.rising(1), oracles.EVEN, largest)
