"""The parts of the kernels' bench, and what is predicted of versions of a kernel."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from assignment.provided.lab.kernel import GPUS, lab, predict
from tests.staff.small_bench import always, loops, put, scripts, small_bench, some_shape

triton = pytest.importorskip("triton", reason="Triton exists for Linux only")


@pytest.fixture(scope="module")
def parts():
    with scripts() as found:
        yield found


@pytest.fixture
def bench(parts, monkeypatch):
    return small_bench(parts, monkeypatch)


# ---- the parts


def test_decode_has_a_row_for_each_shape_and_refuses_what_is_wrong(parts, bench, monkeypatch):
    monkeypatch.setattr(parts.decode, "BATCHES", (1, 2))
    monkeypatch.setattr(parts.decode, "CONTEXTS", (16,))

    def lazy(*args):
        return torch.zeros_like(args[0])

    for attention, word in ((loops, "us"), (lazy, "refused")):
        rows = parts.decode.measure_decode(bench(attention=attention))
        assert [(row["batch"], row["context"]) for row in rows] == [(1, 16), (2, 16)]
        assert all(word in row["ours"] and row["sdpa"]["us"] == 1e6 for row in rows)
    rows = parts.decode.measure_decode(bench(clock=always(1e-12)))
    assert all("refused" in row["gather and sdpa"] for row in rows)


def test_decode_leaves_out_what_the_memory_does_not_hold(parts, bench, monkeypatch):
    monkeypatch.setattr(parts.decode, "BATCHES", (1,))
    monkeypatch.setattr(parts.decode, "CONTEXTS", (16,))

    def too_much(*args):
        raise torch.OutOfMemoryError

    for changed in ({"free": lambda: 1000}, {"attention": too_much}):
        (row,) = parts.decode.measure_decode(bench(**changed))
        assert "left_out" in row and "ours" not in row


def test_inputs_take_turns_until_no_cache_holds_them(parts, bench):
    shape = some_shape(parts)
    for cache, caches in ((1, 1), (shape.kv_bytes * 2, 6)):
        cases = parts.bench.some_cases(bench(cache=cache), shape)
        assert len({id(case.k_cache) for case in cases}) == caches
        assert len({case.q.sum().item() for case in cases}) == len(cases) >= 4


def test_store_is_timed_beside_index_put_and_looked_at(parts, bench, monkeypatch):
    monkeypatch.setattr(parts.store, "NEW_TOKENS", (16,))
    monkeypatch.setattr(parts.store, "BLOCKS", 4)

    def spills(k, v, k_cache, v_cache, slots):
        put(k, v, k_cache, v_cache, slots)
        k_cache.flatten(0, 1)[(slots[0] + 1) % len(k_cache.flatten(0, 1))] += 1

    for store, word in ((put, "us"), (spills, "refused")):
        (row,) = parts.store.measure_store(bench(store=store))
        assert word in row["ours"] and row["index_put"]["us"] == 1e6


def test_what_stays_in_the_cache_need_not_reach_memory(parts):
    moved = 2 * 16 * 8 * 128 * 2  # bytes of 16 tokens' keys and values
    assert parts.store.least_bytes(16, cache=10**9) == moved
    assert parts.store.least_bytes(16, cache=1000) == 2 * moved - 1000


# ---- versions of a kernel, and what is predicted of them


def test_a_batch_is_predicted_from_one_request_and_one_head(parts, bench):
    """Against the lab's count of the whole batch, in which the splits' sums lie further apart."""
    from solutions.kernels.paged_attention import paged_attention

    shape = parts.cases.Shape((40,) * 3, heads=8, kv_heads=2, head_dim=32, splits=2)
    case = parts.cases.make_case(shape, "cpu", seed=5)
    with lab() as seen:
        paged_attention(*case.arguments())
    launches = parts.variants.metered(paged_attention, shape, None)
    whole, found = (predict(some, GPUS["H100"]) for some in (seen.launches, launches))
    assert (found.busiest, found.arithmetic) == pytest.approx((whole.busiest, whole.arithmetic))
    assert found.memory == pytest.approx(whole.memory, rel=0.02)
    for metered, counted in zip(launches, seen.launches, strict=True):
        assert metered.bytes_loaded == counted.bytes_loaded
        assert metered.dot_flops == counted.dot_flops


def test_the_default_number_of_splits_is_found(parts):
    from solutions.kernels.paged_attention import paged_attention

    case = parts.cases.make_case(parts.cases.Shape((1000,)), "cpu", seed=0)
    splits = parts.variants.default_splits(paged_attention, case)
    of = parts.variants.recorded
    assert of(paged_attention, case, splits) == of(paged_attention, case, None)
    assert of(paged_attention, case, splits + 1) != of(paged_attention, case, None)


def test_a_module_gets_its_tile_back(parts):
    module = SimpleNamespace(TILE=64, TILE_BYTES=100)
    with parts.variants.tile_of(module, 16):
        assert module.TILE == 16 and module.TILE_BYTES > 10**6
    assert vars(module) == {"TILE": 64, "TILE_BYTES": 100}
    with parts.variants.tile_of(module, None):
        assert module.TILE == 64


@pytest.mark.parametrize("module", [SimpleNamespace(TILE=64), SimpleNamespace()])
def test_there_are_enough_variants(parts, module):
    found = parts.variants.variants(module)
    assert len(set(found)) == len(found) >= 12
    assert {one.splits for one in found} >= {1, 4, None}


def test_a_program_for_the_whole_batch_is_not_predicted(parts, bench, monkeypatch):
    """Its bytes for one request, times the requests, would look like many programs."""

    def one_program(q, *rest):
        giant[(1,)](q)
        return loops(q, *rest)

    shape = parts.cases.Shape((16,) * 2, heads=4, kv_heads=2, head_dim=16, splits=1)
    case = parts.cases.make_case(shape, "cpu", seed=0)
    assert parts.decode.predicted(bench(attention=one_program, gpu=GPUS["H100"]), case) == {}


@triton.jit
def giant(q):
    triton.language.load(q)


def test_variants_are_compared_by_rank(parts, bench, monkeypatch):
    """With a clock by which each call takes longer than the one before."""
    from solutions.kernels import paged_attention

    module = SimpleNamespace()  # without TILE: splits and warps are varied
    monkeypatch.setattr(parts.variants, "FINE_SPLITS", (1, 2, 4))
    monkeypatch.setattr(parts.variants, "FINE_WARPS", (4,))
    monkeypatch.setattr(parts.decode, "COMPARED", ((1, 64),))
    times = iter(range(1, 100))
    clock = bench(
        attention=paged_attention.paged_attention,
        module=module,
        gpu=GPUS["H100"],
        clock=lambda work: (work(), float(next(times)))[1],
    )
    (found,) = parts.decode.measure_variants(clock)
    assert found["compared"] == 3 and [row["splits"] for row in found["variants"]] == [1, 2, 4]
    predicted, measured = ([row[k] for row in found["variants"]] for k in ("predicted_us", "us"))
    assert measured == sorted(measured)
    expected = parts.variants.rank_correlation(predicted, measured)
    assert found["rank_correlation"] == round(expected, 3)


def test_rank_correlation_by_hand(parts):
    of = parts.variants.rank_correlation
    assert of([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1)
    assert of([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert of([1, 1, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert math.isnan(of([1, 1], [1, 2]))
