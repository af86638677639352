"""kernels.chunked_linear_attention: the recurrence's outputs, and the state once a call."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from submission.kernels.chunked_linear_attention import chunked_linear_attention
from tests.grading.closeness import assert_equal
from tests.grading.kernels.boundary import Seen, in_lab
from tests.grading.shapes import around
from tests.kernels.kernel_costs import (
    ARCHITECTURES,
    assert_asks_nothing,
    assert_fits,
    assert_kernels_work,
    by_one_program,
    charge_bytes,
    charge_code,
    charge_time,
)
from tests.kernels.kernel_inputs import DTYPES, assert_same_bits, bits
from tests.kernels.linear_inputs import Linear, draw_linear, least_bytes
from tests.kernels.oracles_linear import assert_linear, recurrence
from tests.kernels.rounding import root_mean_square, tf32_is_told

ARGUMENTS = ("q", "k", "v", "log_decay", "state", "starts")
RAGGED = [5, 0, 70, 1]
SHAPES = pytest.mark.parametrize(
    "heads, key_dim, value_dim",
    [(3, 64, 24), (1, 16, 80), (5, 80, 48), (2, 20, 130), (3, 128, 64), (1, 144, 20)],
)


def check(draw, linear: Linear, integer_bits: int = 32, but: int | None = None) -> Seen:
    """Programs run in an order of chance. Results are right, and arguments as they were."""
    before = [bits(argument).clone() for argument in linear.arguments[:6]]
    seen = in_lab(
        chunked_linear_attention, *linear.arguments, seed=draw.seed(), integer_bits=integer_bits
    )
    assert seen.launches, "no kernel was launched"
    assert isinstance(seen.value, tuple) and len(seen.value) == 2, "expected outputs and new state"
    with tf32_is_told(seen):
        assert_linear(*seen.value, linear, but)
    for name, old, new in zip(ARGUMENTS, before, seen.arguments, strict=False):
        assert_equal(bits(new), old, what=f"bits of {name}, afterwards")
    return seen


@pytest.mark.group("outputs")
class TestOutputs:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_dtypes(self, draw, dtype):
        check(draw, draw_linear(draw, 3, [17, 130, 1], dtype=dtype))

    @SHAPES
    def test_heads_and_widths(self, draw, heads, key_dim, value_dim):
        options = {"key_dim": key_dim, "value_dim": value_dim}
        check(draw, draw_linear(draw, heads, RAGGED, **options))

    def test_lengths_around_the_end_of_a_chunk(self, draw):
        lengths = [length for chunk in (16, 32, 64, 128) for length in around(chunk)]
        check(draw, draw_linear(draw, 2, lengths))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_one_token_each(self, draw, dtype):
        check(draw, draw_linear(draw, 3, [1] * 7, dtype=dtype, key_dim=24, value_dim=80))

    def test_one_token_beside_others(self, draw):
        check(draw, draw_linear(draw, 3, [1, 40, 0, 1, 3, 1]))

    def test_one_sequence(self, draw):
        check(draw, draw_linear(draw, 3, [100]))

    @pytest.mark.parametrize("scale", [0.05, 0.7])
    def test_other_scales(self, draw, scale):
        check(draw, draw_linear(draw, 2, [40, 9], scale=scale))

    @pytest.mark.parametrize("lengths", [[3, 2], [40, 1]], ids=str)
    def test_max_tokens_far_above_the_largest(self, draw, lengths):
        check(draw, draw_linear(draw, 2, lengths, max_tokens=700))

    def test_padding_behind_the_last_sequence(self, draw):
        """Rows of NaN. What is in their outputs nobody reads."""
        check(draw, draw_linear(draw, 2, [30, 17], padding=50))

    @pytest.mark.parametrize("bad", [0, 1, 2])
    def test_a_neighbour_of_nan(self, draw, bad):
        """The tokens of one sequence are NaN, and so are its results; no others are."""
        linear = draw_linear(draw, 2, [20, 41, 9])
        for argument in linear.arguments[:4]:
            argument[linear.rows(bad)] = torch.nan
        check(draw, linear, but=bad)

    def test_many_chunks(self, draw):
        check(draw, draw_linear(draw, 3, [700, 400]))

    def test_kernels_do_the_work(self, draw):
        linear = draw_linear(draw, 3, [150, 90], key_dim=48, value_dim=64)
        assert_kernels_work(check(draw, linear), 4 * sum(linear.lengths) * 3 * 48 * 64)


@pytest.mark.group("states")
class TestStates:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("at", [(16, 30, 1), (15, 64, 0), (40, 1, 33)], ids=str)
    def test_two_calls_are_as_one(self, draw, dtype, at):
        """The second call gets the new state of the first; some have nothing in one of them."""
        whole = draw_linear(draw, 3, [40, 65, 33], dtype=dtype)
        self._in_parts(draw, whole, [[0, 0, 0], at, whole.lengths])

    @pytest.mark.parametrize("step", [1, 7, 32])
    def test_one_sequence_in_steps(self, draw, step):
        whole = draw_linear(draw, 2, [6 * step])
        self._in_parts(draw, whole, [[i * step] for i in range(7)])

    @staticmethod
    def _in_parts(draw, whole: Linear, borders: list) -> None:
        """Each part is right for the state it was given, and all together are for the first."""
        outs: list[list[Tensor]] = [[] for _ in whole.lengths]
        state = whole.state
        for firsts, ends in pairwise(borders):
            part = whole.part(firsts, ends, state)
            out, state = check(draw, part).value
            for sequence, its in enumerate(outs):
                its.append(out[part.rows(sequence)])
        assert_linear(torch.cat([piece for its in outs for piece in its]), state, whole)

    @pytest.mark.parametrize("lengths", [[5, 0, 40], [0, 3], [0, 0]], ids=str)
    def test_no_new_tokens_no_change(self, draw, lengths):
        linear = draw_linear(draw, 2, lengths)
        _, state = check(draw, linear).value
        for row, length in enumerate(lengths):
            if not length:
                what = f"new state of sequence {row}, without new tokens"
                assert_same_bits(state[row], linear.state[row], axes="head row column", what=what)

    @pytest.mark.parametrize("lengths", [[40, 70], [1, 1, 1]], ids=str)
    def test_states_beyond_float16(self, draw, lengths):
        """In the millions; outputs are not."""
        check(draw, draw_linear(draw, 2, lengths, level=1e6, scale=1e-3, decay=-0.02))

    @pytest.mark.parametrize("level", [0, 1e-41])
    def test_states_of_zeros_or_hardly_more(self, draw, level):
        """1 / 1e-41 is more than float32 holds."""
        check(draw, draw_linear(draw, 2, [30, 1], level=level))

    @pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
    def test_sums_are_those_of_float32(self, draw, dtype):
        """A state of 3,000 tokens is closer than if it were rounded once. (Rounded after each chunk
        it is several times as far off, which a usual tolerance may forgive.)"""
        linear = draw_linear(draw, 1, [3000], dtype=dtype, decay=0.0)
        got = check(draw, linear).value[1][0].double()
        expected = recurrence(linear, 0)[1]
        rounded = root_mean_square(expected.to(dtype).double() - expected)
        off = root_mean_square(got - expected)
        assert off < rounded, (
            f"the mean distance from the exact state is {off:.2g}; rounding it once to "
            f"{dtype} costs {rounded:.2g}"
        )

    @pytest.mark.parametrize("most", ["tokens", "states"])
    def test_beyond_what_int32_reaches(self, draw, most):
        """The lab's int32 has 16 bits here: 40,000 elements are as 2.6 · 10⁹."""
        wide = {"key_dim": 80, "value_dim": 48}
        if most == "tokens":
            linear = draw_linear(draw, 5, [90, 20], **wide)
        else:
            linear = draw_linear(draw, 4, [1, 2, 1], **wide)
        check(draw, linear, integer_bits=16)


@pytest.mark.group("decay")
class TestDecay:
    @pytest.mark.parametrize(
        "closed",
        [[0], [6], [3, 4, 20], [15, 16, 17, 31, 32, 33, 63, 64, 65], [69], list(range(70))],
        ids=["first", "one", "several", "borders", "last", "all"],
    )
    def test_gates_of_0(self, draw, closed):
        check(draw, draw_linear(draw, 3, RAGGED, closed=closed))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_gates_of_0_now_and_then(self, draw, dtype):
        closed = draw.permutation(150)[:12].tolist()
        check(draw, draw_linear(draw, 3, [150, 90], closed=closed, dtype=dtype))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("decay", [-2.0, -9.0, -300.0])
    def test_strong(self, draw, decay, dtype):
        """exp of the sum of a few of them, negated, is more than float32 holds."""
        check(draw, draw_linear(draw, 2, [70, 1, 33], decay=decay, dtype=dtype))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_none(self, draw, dtype):
        """Gates of 1: nothing is ever forgotten."""
        check(draw, draw_linear(draw, 2, [200, 30], decay=0.0, dtype=dtype))

    def test_weak(self, draw):
        """Gates that float16 and bfloat16 round to 1."""
        check(draw, draw_linear(draw, 2, [500], decay=-4e-4))

    @pytest.mark.parametrize("decay", [-1e-3, -90.0])
    def test_one_token_each(self, draw, decay):
        check(draw, draw_linear(draw, 3, [1, 1, 0, 1], decay=decay))

    def test_one_token_each_with_a_gate_of_0(self, draw):
        check(draw, draw_linear(draw, 3, [1, 1, 0, 1], closed=[0]))


@pytest.mark.group("compiled")
class TestCompiled:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_every_launch_fits(self, draw, architecture):
        seen = check(draw, draw_linear(draw, 2, [40, 70], key_dim=128, value_dim=128))
        assert_fits(seen, architecture)
        assert_asks_nothing(seen)


@pytest.mark.cost("bytes")
class TestBytes:
    def test_prompts(self, draw, budget):
        """Queries and keys once for 64 columns of the values, the state once for all tokens."""
        lengths = [150, 67, 30, 200]
        linear = draw_linear(draw, 3, lengths, key_dim=64, value_dim=64)
        least, states = least_bytes(linear), 2 * 4 * linear.state.numel()
        per_chunk = states * sum(-(-length // 64) for length in lengths) // len(lengths)
        beside = {"state in memory from chunk to chunk": least - states + per_chunk}
        charge_bytes(budget, check(draw, linear), least, beside)

    def test_wide_values(self, draw, budget):
        linear = draw_linear(draw, 2, [201, 160], key_dim=128, value_dim=128)
        least, both = least_bytes(linear), 2 * 361 * 2 * 128 * 2  # queries and keys, once
        beside = {f"queries and keys for {n} columns": least + (128 // n - 2) * both
                  for n in (32, 16)}  # fmt: skip
        charge_bytes(budget, check(draw, linear), least, beside)

    def test_one_token_each(self, draw, budget):
        linear = draw_linear(draw, 3, [1] * 20, key_dim=64, value_dim=64)
        least, state = least_bytes(linear), 4 * linear.state.numel()
        beside = {"a copy of the states first": least + 2 * state}
        charge_bytes(budget, check(draw, linear), least, beside)


@pytest.mark.cost("time")
class TestTime:
    """On an H100, as the lab predicts it. The ideal moves the least bytes at full bandwidth."""

    @pytest.mark.parametrize(
        "shape, heads, lengths, dims",
        [
            ("44 prompts", 3, [20 + 7 * i % 59 for i in range(44)], (32, 64)),
            ("one token each", 4, [1] * 34, (64, 64)),
        ],
        ids=["many_prompts", "one_token_each"],
    )
    def test_predicted_time(self, draw, budget, shape, heads, lengths, dims):
        linear = draw_linear(draw, heads, lengths, key_dim=dims[0], value_dim=dims[1])
        seen, least = check(draw, linear), least_bytes(linear)
        flops = 4 * sum(lengths) * heads * dims[0] * dims[1]
        beside = {f"{shape}: all by 16 programs": by_one_program(least / 16)}
        charge_time(budget, seen, least, flops=flops, beside=beside)


@pytest.mark.cost("code")
def test_what_the_compiler_makes_of_it(draw, budget):
    """For an A100 and an H100: registers that spill; loads that are no 16 bytes a thread; products
    that do not reach the tensor cores. Many tokens of 64 and of 128 channels."""
    some = [draw_linear(draw, 2, [40, 70], key_dim=dim, value_dim=dim) for dim in (64, 128)]
    seen = [check(draw, linear) for linear in some]
    charge_code(budget, seen, reading=seen[1], products=seen[0])
