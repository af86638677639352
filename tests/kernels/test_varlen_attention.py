"""kernels.varlen_attention: causal, of many queries, each tile of keys once for a tile of rows."""

from __future__ import annotations

import pytest
import torch

from submission.kernels.varlen_attention import varlen_attention
from tests.grading.closeness import assert_equal
from tests.grading.kernels.boundary import Seen, in_lab
from tests.grading.shapes import around
from tests.kernels.kernel_costs import (
    H100,
    assert_asks_nothing,
    assert_fits,
    assert_kernels_work,
    by_one_program,
    charge_bytes,
    charge_code,
    charge_time,
)
from tests.kernels.kernel_inputs import DTYPES, FAR, GROUPS, bits
from tests.kernels.oracles_varlen import assert_attention, assert_rounded_once
from tests.kernels.rounding import tf32_is_told
from tests.kernels.varlen_inputs import (
    Varlen,
    chunk_of,
    draw_varlen,
    kv_bytes,
    least_bytes,
    most_kv_bytes,
    no_request,
    prompts,
    tensors,
)

SHAPES = pytest.mark.parametrize(
    "heads, kv_heads, head_dim, block_size", [*GROUPS, (71, 1, 64, 16)]
)


def check(draw, varlen: Varlen, seed: int | None = None, integer_bits: int = 32) -> Seen:
    """Programs run in an order of chance. Outputs are right, and arguments as they were."""
    before = {name: bits(x).clone() for name, x in tensors(varlen.arguments).items()}
    lab = {"seed": draw.seed() if seed is None else seed, "integer_bits": integer_bits}
    seen = in_lab(varlen_attention, *varlen.arguments, **lab)
    assert seen.launches or not len(varlen.q), "no kernel was launched"
    with tf32_is_told(seen):
        assert_attention(seen.value, varlen)
    for name, new in tensors(seen.arguments).items():
        assert_equal(bits(new), before[name], what=f"bits of {name}, afterwards")
    return seen


@pytest.mark.group("prefill")
class TestPrefill:
    """Whole prompts; keys one after another, NaN in the gaps."""

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_dtypes(self, draw, dtype):
        check(draw, draw_varlen(draw, 6, 2, prompts(17, 70, 1), head_dim=80, dtype=dtype))

    @SHAPES
    def test_heads_and_widths(self, draw, heads, kv_heads, head_dim, block_size):
        check(draw, draw_varlen(draw, heads, kv_heads, prompts(1, 37, 20), head_dim=head_dim))

    @pytest.mark.parametrize("heads, tiles", [(2, (16, 32, 64, 128)), (6, (16, 21, 32, 43, 64))])
    def test_lengths_around_the_end_of_a_tile(self, draw, heads, tiles):
        """Of 16 to 128 keys; and of rows, where a query token is one of them, or three."""
        lengths = [length for tile in tiles for length in around(tile)]
        check(draw, draw_varlen(draw, heads, 2, prompts(*lengths)))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_scores_far_from_zero(self, draw, dtype):
        options = {"head_dim": 64, "dtype": dtype, "levels": FAR}
        for lengths in ([70, 1, 90], [20, 80, 1]):
            check(draw, draw_varlen(draw, 4, 2, prompts(*lengths), **options))

    def test_many_tiles(self, draw):
        """The largest score comes anywhere: what was summed before is worth less from then on."""
        check(draw, draw_varlen(draw, 2, 1, prompts(300, 250), levels=[(-8, 8), (-300, 300)]))

    @pytest.mark.parametrize("scale", [0.05, 0.7])
    def test_other_scales(self, draw, scale):
        check(draw, draw_varlen(draw, 6, 2, prompts(70, 9), scale=scale))

    @pytest.mark.parametrize("others", [prompts(9, 30), []], ids=["some", "all"])
    def test_requests_without_queries(self, draw, others):
        """First, last and between; they may have tokens all the same, which are not looked at."""
        requests = [(0, 20), (0, 0), *others[:1], (0, 7), *others[1:], (0, 3)]
        check(draw, draw_varlen(draw, 6, 2, requests))

    def test_more_queries_allowed_than_there_are(self, draw):
        check(draw, draw_varlen(draw, 6, 2, prompts(30, 3), max_queries=200))

    def test_any_order_of_programs(self, draw):
        varlen = draw_varlen(draw, 6, 2, prompts(30, 61))
        for seed in range(3):
            check(draw, varlen, seed)

    def test_keys_here_or_there(self, draw):
        """In rows or in blocks: one of them has to be given, and one only."""
        rows, blocks = (draw_varlen(draw, 6, 2, prompts(9, 3), block_size=x) for x in (None, 4))
        both = [*blocks.arguments[:8], rows.arguments[8], blocks.arguments[9]]
        for arguments in (rows.arguments[:8], blocks.arguments[:8], both):
            with pytest.raises(ValueError) as refusal:
                in_lab(varlen_attention, *arguments)
            for name in ("key_starts", "block_tables"):
                assert name in str(refusal.value), f"{name} is not named: {refusal.value}"

    def test_kernels_do_the_work(self, draw):
        varlen = draw_varlen(draw, 6, 2, prompts(90, 61), head_dim=64)
        assert_kernels_work(check(draw, varlen), varlen.flops)


@pytest.mark.group("chunks")
class TestChunks:
    """Queries start anywhere; what comes after them is not written yet, and NaN."""

    @pytest.mark.parametrize("group", [1, 3, 7])
    def test_short_chunks(self, draw, group):
        requests = [(1, 5), (2, 5), (1, 1), (1, 90), (3, 66), (5, 64), (4, 65), (7, 129)]
        check(draw, draw_varlen(draw, 2 * group, 2, requests))

    @SHAPES
    def test_a_step_of_a_server(self, draw, heads, kv_heads, head_dim, block_size):
        """A prompt, a chunk of one, and requests with one new token each."""
        requests = [(1, 70), (20, 80), (1, 1), (25, 25), (0, 40), (1, 33)]
        check(draw, draw_varlen(draw, heads, kv_heads, requests, head_dim=head_dim))

    def test_queries_from_anywhere(self, draw):
        """The first around the end of a tile of keys, and the last."""
        requests = [(20, 20 + start) for start in (30, 62, *around(64))]
        requests += [(20, end) for end in (*around(64), *around(128))]
        check(draw, draw_varlen(draw, 6, 2, requests))

    def test_more_queries_than_tokens(self, draw):
        """The first of them see nothing: zeros. Among others in one tile, or all of a tile."""
        requests = [(5, 2), (3, 0), (1, 0), (90, 7), (4, 9), (70, 69)]
        check(draw, draw_varlen(draw, 6, 2, requests))

    @pytest.mark.parametrize("size", [4, 13, 33])
    def test_chunks_are_as_one_pass(self, draw, size):
        """Each in a launch of its own, before what comes after it is written."""
        whole = draw_varlen(draw, 6, 2, prompts(42, 42), head_dim=32)
        found = []
        for start in range(0, 42, size):
            chunk = chunk_of(draw, whole, start, start + size)
            found.append(check(draw, chunk).value.chunk(2))
        assert_attention(torch.cat([torch.cat(parts) for parts in zip(*found, strict=True)]), whole)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_scores_far_from_zero(self, draw, dtype):
        options = {"head_dim": 64, "dtype": dtype, "levels": FAR}
        check(draw, draw_varlen(draw, 4, 2, [(20, 100), (1, 67), (9, 150)], **options))

    def test_no_request(self, draw):
        check(draw, no_request(draw))

    def test_beyond_what_int32_reaches(self, draw):
        """The lab's int32 has 16 bits here: queries of 38,400 elements, keys of 38,784 at least."""
        check(draw, draw_varlen(draw, 4, 2, [(140, 270), (10, 33)], head_dim=64), integer_bits=16)

    def test_sums_are_those_of_float32(self, draw):
        """As close as a result that is rounded once. (Sums that are rounded after each tile are two
        or three times as far off, which a usual tolerance of bfloat16 forgives.)"""
        varlen = draw_varlen(draw, 4, 1, [(2, 4000)], dtype=torch.bfloat16, mean=1)
        assert_rounded_once(check(draw, varlen).value, varlen)


@pytest.mark.group("paged")
class TestPaged:
    """Blocks in random order, NaN in every slot that is no token's."""

    @SHAPES
    def test_heads_and_blocks(self, draw, heads, kv_heads, head_dim, block_size):
        lengths = [1, *around(max(2, block_size)), 41]
        options = {"head_dim": head_dim, "block_size": block_size}
        check(draw, draw_varlen(draw, heads, kv_heads, prompts(*lengths), **options))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_dtypes(self, draw, dtype):
        requests = [(1, 70), (20, 90), (0, 0), (33, 33), (0, 6), (1, 1)]
        check(draw, draw_varlen(draw, 6, 2, requests, block_size=5, dtype=dtype))

    @pytest.mark.parametrize("block_size", [1, 5, 16, 128])
    def test_chunks(self, draw, block_size):
        requests = [(3, 66), (30, 64), (1, 130), (2, 5), (5, 2), (64, 65)]
        check(draw, draw_varlen(draw, 6, 2, requests, block_size=block_size))

    def test_shared_blocks(self, draw):
        """Three of the requests begin with the same 64 tokens, in the same 4 blocks."""
        requests = [(20, 90), (30, 30), (1, 64), (7, 71)]
        varlen = draw_varlen(draw, 6, 2, requests, shared=64, block_size=16)
        assert_equal(*varlen.arguments[9][[0, 3], :4])
        check(draw, varlen)

    def test_blocks_beyond_what_int32_reaches(self, draw):
        """The lab's int32 has 16 bits here: a cache of 100,000 elements is as one of 6 · 10⁹."""
        options = {"head_dim": 64, "block_size": 16}
        requests = [(20, 400), (1, 33), (3, 200)]
        check(draw, draw_varlen(draw, 4, 2, requests, **options), integer_bits=16)


@pytest.mark.group("window")
class TestWindow:
    """Whatever no query of a request sees is NaN, from the token before the first one's window."""

    @pytest.mark.parametrize("block_size, windows", [(None, (1, 4, 16, 70, 1000)), (5, (4, 70))])
    def test_windows(self, draw, block_size, windows):
        requests = [(1, 1), *prompts(4, 5, 6), (1, 90), (2, 100), (40, 70), (70, 140), (5, 2)]
        for window in windows:
            options = {"block_size": block_size, "window": window}
            check(draw, draw_varlen(draw, 6, 2, requests, **options))

    @SHAPES
    def test_heads_and_blocks(self, draw, heads, kv_heads, head_dim, block_size):
        options = {"head_dim": head_dim, "block_size": block_size, "window": max(3, block_size)}
        check(draw, draw_varlen(draw, heads, kv_heads, [(20, 90), (1, 41), (33, 33)], **options))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_scores_far_from_zero(self, draw, dtype):
        """Where a tile of keys of which a row sees none counts as 0, nothing is left of these."""
        options = {"head_dim": 64, "dtype": dtype, "levels": FAR, "window": 20}
        check(draw, draw_varlen(draw, 2, 2, [(100, 150), (40, 40), (90, 110)], **options))


@pytest.mark.group("compiled")
class TestCompiled:
    @pytest.mark.parametrize("architecture, block_size", [("sm_80", None), ("sm_90", 16)])
    def test_every_launch_fits(self, draw, architecture, block_size):
        options = {"head_dim": 128, "block_size": block_size}
        seen = check(draw, draw_varlen(draw, 8, 2, [(33, 40), (1, 90)], **options))
        assert_fits(seen, architecture)
        assert_asks_nothing(seen)


@pytest.mark.cost("bytes")
class TestBytes:
    """The ideal has programs of 64 rows, which are pairs of a query token and a query head of a KV
    head; each loads what at least one of its rows sees, once. Larger tiles are not better."""

    def test_prompts(self, draw, budget):
        varlen = draw_varlen(draw, 8, 2, prompts(200, 97), head_dim=64)
        seen = check(draw, varlen)
        all_keys = sum(len(varlen.keys[b]) for b, _, _ in varlen.tiles()) * 2 * 2 * 2 * 64
        beside = {
            "keys and values, the later ones too": all_keys,
            "keys and values, for tiles of 16 rows": kv_bytes(varlen, 16),
        }
        charge_bytes(budget, seen, least_bytes(varlen), beside)

    def test_chunks_in_blocks(self, draw, budget):
        """Of one token, mostly: a KV head's query heads are all that shares its keys."""
        requests = [(1, 600), (6, 300), (1, 90), (40, 130), (1, 257)]
        varlen = draw_varlen(draw, 16, 2, requests, head_dim=64, block_size=16)
        seen = check(draw, varlen)
        beside = {"keys and values, for each query token": kv_bytes(varlen, varlen.group)}
        charge_bytes(budget, seen, least_bytes(varlen), beside)

    def test_window(self, draw, budget):
        varlen = draw_varlen(draw, 8, 2, [(60, 500), (1, 700), (150, 150)], head_dim=64, window=64)
        seen = check(draw, varlen)
        whole = sum(seen.stop for _, _, seen in varlen.tiles()) * 2 * 2 * 2 * 64
        beside = {"keys and values, before the windows too": whole}
        charge_bytes(budget, seen, least_bytes(varlen), beside)


@pytest.mark.cost("time")
class TestTime:
    """On an H100, as the lab predicts it. The ideal moves the least bytes at full bandwidth."""

    def test_prompts(self, draw, budget):
        """126 tiles of rows. The longest of twice as many rows takes less than the ideal, too."""
        lengths = (128, 127, 120, 128)
        self.charge(draw, budget, draw_varlen(draw, 16, 2, prompts(*lengths), head_dim=64))

    def test_a_step_of_a_server(self, draw, budget):
        """A chunk of a prompt, beside 80 requests with one new token each."""
        requests = [(1, 88 + i // 2) for i in range(80)]
        requests[50:50] = [(32, 40)]
        self.charge(draw, budget, draw_varlen(draw, 8, 1, requests, head_dim=64, block_size=16))

    def charge(self, draw, budget, varlen: Varlen) -> None:
        seen = check(draw, varlen)
        least = least_bytes(varlen)
        longest = max(by_one_program(most_kv_bytes(varlen)), least / H100.bandwidth)
        beside = {"one program a request and KV head": longest}
        charge_time(budget, seen, least, flops=varlen.flops, beside=beside)


@pytest.mark.cost("code")
def test_what_the_compiler_makes_of_it(draw, budget):
    """For an A100 and an H100: registers that spill; loads of keys and values that are no 16 bytes
    a thread; products that do not reach the tensor cores."""
    rows, blocks = (
        check(draw, draw_varlen(draw, 8, 2, [(33, 40), (1, 90)], head_dim=128, block_size=size))
        for size in (None, 16)
    )
    charge_code(budget, [rows, blocks], reading=rows, products=rows)
