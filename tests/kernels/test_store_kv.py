"""kernels.store_kv: each token's key and value in its slot, and every other byte as it was."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from assignment.provided.lab.kernel import predict
from submission.kernels.store_kv import store_kv
from submission.provided.lab.kernel.fused import with_slices
from tests.grading.closeness import assert_equal
from tests.grading.kernels.boundary import Seen, in_lab
from tests.kernels.kernel_costs import (
    H100,
    assert_asks_nothing,
    by_one_program,
    charge_bytes,
    longest_launch,
)
from tests.kernels.kernel_inputs import DTYPES, assert_same_bits, noise

__tracebackhide__ = True

SEEDS = (0, 1)  # of the order of the programs
AXES = "block offset kv_head dim"


@dataclass
class Case:
    """Arguments of `store_kv`: caches of noise, and a slot for each token, −1 for none.

    projected: [T, heads, H], the output of a projection for queries, keys and values. sliced:
    argument -> (first, last + 1) of its heads, where that is a slice of it.
    """

    k: Tensor
    v: Tensor
    k_cache: Tensor
    v_cache: Tensor
    slots: Tensor
    projected: Tensor | None = None
    sliced: dict[str, tuple[int, int]] = field(default_factory=dict)

    NAMES = ("k", "v", "k_cache", "v_cache", "slots")

    def call(self, seed: int = 0, integer_bits: int = 32) -> Seen:
        """Store, and check what is in the caches and the other arguments afterwards."""
        lab = {"seed": seed, "integer_bits": integer_bits}
        given = [self.sliced.get(name, getattr(self, name).clone()) for name in self.NAMES]
        if self.projected is None:
            seen = in_lab(store_kv, *given, **lab)
        else:
            seen = in_lab(with_slices, store_kv, self.projected.clone(), *given, **lab)
            assert_unchanged(seen.arguments[1], self.projected, "k and v")
        after = dict(zip(self.NAMES, seen.arguments[-5:], strict=True))
        for name in {"k", "v"} - self.sliced.keys():
            assert_unchanged(after[name], getattr(self, name), name)
        assert_equal(after["slots"], self.slots, axes="token", what="slots, afterwards")
        self._check(seen, after["k_cache"], after["v_cache"])
        return seen

    def _check(self, seen: Seen, *caches: Tensor) -> None:
        """Every bit of both caches; and that kernels stored what is new."""
        new_bytes = 0
        for name, new, after in zip(("k_cache", "v_cache"), (self.k, self.v), caches, strict=True):
            expected = getattr(self, name).clone()
            flat = expected.view(-1, *new.shape[1:])
            for token, slot in enumerate(self.slots.tolist()):
                if slot >= 0:
                    flat[slot] = new[token]
                    new_bytes += new[token].numel() * new.element_size()
            assert_same_bits(after, expected, axes=AXES, what=name)
        stored = sum(launch.bytes_stored for launch in seen.launches)
        assert stored >= new_bytes, (
            f"kernels stored {stored:,} bytes; the new keys and values are {new_bytes:,}: the rest "
            "is not a kernel's work"
        )


def assert_unchanged(after: Tensor, before: Tensor, name: str) -> None:
    assert_same_bits(after, before, axes="token head dim", what=f"{name}, afterwards")


def draw_case(
    draw,
    tokens: int,
    kv_heads: int = 3,
    head_dim: int = 20,
    *,
    blocks: int = 4,
    block_size: int = 5,
    dtype: torch.dtype = torch.float16,
    slot_dtype: torch.dtype = torch.int64,
) -> Case:
    k, v = (draw.normal(tokens, kv_heads, head_dim, dtype=dtype) for _ in "kv")
    caches = [noise(draw, blocks, block_size, kv_heads, head_dim, dtype=dtype) for _ in "kv"]
    slots = draw.permutation(blocks * block_size)[:tokens].to(slot_dtype)
    return Case(k, v, *caches, slots)


def draw_fused(draw, tokens: int, queries: int, kv_heads: int, head_dim: int, **options) -> Case:
    """As `draw_case`; k and v are slices of one tensor, behind the heads of the queries."""
    case = draw_case(draw, tokens, kv_heads, head_dim, **options)
    heads = queries + 2 * kv_heads
    case.projected = draw.normal(tokens, heads, head_dim, dtype=case.k.dtype)
    middle = queries + kv_heads
    case.sliced = {"k": (queries, middle), "v": (middle, heads)}
    case.k, case.v = (case.projected[:, start:end] for start, end in case.sliced.values())
    return case


@pytest.mark.group("values")
class TestValues:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_dtypes(self, draw, dtype):
        for seed in SEEDS:
            draw_case(draw, 7, dtype=dtype).call(seed)

    @pytest.mark.parametrize("tokens", [1, 20, 65])
    def test_numbers_of_tokens(self, draw, tokens):
        draw_case(draw, tokens, blocks=14).call()

    def test_no_tokens(self, draw):
        draw_case(draw, 0).call()

    @pytest.mark.parametrize(
        "kv_heads, head_dim", [(9, 20), (3, 64), (1, 80), (1, 1), (8, 128), (11, 187)]
    )
    def test_widths(self, draw, kv_heads, head_dim):
        """K · H below, at and above what fits a tile; most of them no power of two."""
        draw_case(draw, 3, kv_heads, head_dim).call()

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_numbers_at_the_edge(self, draw, dtype):
        """−0, infinities, the smallest and the largest: copied bit by bit, not computed with."""
        case = draw_case(draw, 4, dtype=dtype)
        kind = torch.finfo(dtype)
        edge = [-0.0, torch.inf, -torch.inf, kind.max, kind.min, kind.smallest_normal / 4]
        for new in (case.k, case.v):
            new.view(4, -1)[:, 7:13] = torch.tensor(edge, dtype=torch.float64).to(dtype)
        case.call()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
    def test_slices_of_a_fused_projection(self, draw, dtype):
        """The next token's key lies further on than K · H elements, and its value, too."""
        for heads in ((6, 2, 20), (9, 3, 16)):
            draw_fused(draw, 6, *heads, dtype=dtype).call()

    @pytest.mark.parametrize("own", ["k", "v"])
    def test_one_of_them_is_a_slice(self, draw, own):
        """As in a server: keys were rotated into a tensor of their own, values were not."""
        case = draw_fused(draw, 5, 4, 2, 24)
        del case.sliced[own]
        setattr(case, own, getattr(case, own).clone())
        case.call()


@pytest.mark.group("places")
class TestPlaces:
    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
    def test_slots_of_both_dtypes(self, draw, dtype):
        draw_case(draw, 9, slot_dtype=dtype).call()

    @pytest.mark.parametrize("block_size", [1, 3, 16])
    def test_first_and_last_slot(self, draw, block_size):
        case = draw_case(draw, 3, block_size=block_size)
        case.slots = torch.tensor([4 * block_size - 1, 1, 0])
        case.call()

    @pytest.mark.parametrize(
        "skipped",
        [[0], [8], [1, 2, 5], [0, 3, 8], list(range(9))],
        ids=["first", "last", "several", "ends", "all"],
    )
    @pytest.mark.parametrize("slot_dtype", [torch.int32, torch.int64], ids=str)
    def test_skipped_tokens(self, draw, skipped, slot_dtype):
        case = draw_case(draw, 9, slot_dtype=slot_dtype)
        case.slots[skipped] = -1
        for seed in SEEDS:
            case.call(seed)

    def test_what_a_skipped_token_holds_goes_nowhere(self, draw):
        """And nobody has to ask which tokens these are."""
        case = draw_case(draw, 8)
        case.slots[[2, 3, 7]] = -1
        case.k[[2, 7]], case.v[[2, 3]] = torch.nan, torch.inf
        assert_asks_nothing(case.call())

    def test_neighbours_in_the_cache_come_from_far_apart(self, draw):
        """All slots of a cache, in reverse and mixed: a program's slots are not in a row."""
        for order in (torch.arange(20).flip(0), torch.arange(20).view(4, 5).T.flatten()):
            case = draw_case(draw, 20)
            case.slots = order.contiguous()
            for seed in SEEDS:
                case.call(seed)

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
    def test_slots_beyond_what_int32_reaches(self, draw, dtype):
        """The lab's int32 has 16 bits here: a cache of 96,000 elements is as one of 6 · 10⁹."""
        case = draw_case(draw, 8, blocks=100, block_size=16, slot_dtype=dtype)
        case.slots[:4] = torch.tensor([547, 3, 1093, 1599])  # of 60 elements: 2¹⁵ is in slot 546
        case.slots[4:] = draw.permutation(400)[:4] + 1100
        case.call(integer_bits=16)


@pytest.mark.cost("bytes")
def test_each_byte_once(draw, budget):
    """Bytes that kernels request, and that torch moves: 40 tokens, 10 of which are not stored.

    k and v are slices of a fused projection. The ideal: the slots, and the stored tokens' keys and
    values, read once and written once.
    """
    case = draw_fused(draw, 40, 16, 8, 64, blocks=12)
    case.slots[draw.permutation(40)[:10]] = -1
    seen = case.call()
    once = 2 * 8 * 64 * 2  # of a token's key and value
    slots = case.slots.numel() * case.slots.element_size()
    ideal = 2 * 30 * once + slots
    beside = {
        "reading skipped tokens, too": (40 + 30) * once + slots,
        "a copy of k and v first": 2 * (40 + 30) * once + slots,
        "a copy of the caches, and back": ideal + 4 * 60 * once,
    }
    charge_bytes(budget, seen, ideal, beside)


@pytest.mark.cost("time")
def test_predicted_time_on_an_h100(draw, budget):
    """256 tokens of 8 KV heads of 128 channels, float16.

    The ideal: each byte once at full bandwidth. One program would use one of 132 multiprocessors.
    """
    case = draw_case(draw, 256, 8, 128, blocks=60, slot_dtype=torch.int32)
    seen = case.call()
    predicted = predict(seen.launches, H100)
    of_torch = seen.cost.bytes / H100.bandwidth
    ideal = (2 * 2 * 256 * 8 * 128 * 2 + 256 * 4) / H100.bandwidth
    got = max(predicted.seconds + of_torch, ideal)
    beside = {"one program for all": by_one_program(ideal * H100.bandwidth)}
    note = longest_launch(seen, predicted)
    budget(got, ideal, unit="s", beside=beside, note=note)
