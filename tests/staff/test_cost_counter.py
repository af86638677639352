"""The cost counter against numbers computed by hand."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from assignment.provided.lab import Cost, CostCounter, LeftTorch, counting_suspended

B, N, K, T, S, H = 2, 6, 2, 3, 9, 16
KV_BYTES = B * K * S * H * 4  # keys alone, float32


def cost_of(function) -> Cost:
    with CostCounter() as counter:
        function()
    return counter.cost


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


# Products


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_matrix_product_is_two_flops_for_each_multiply_add(dtype):
    a, b = normal(3, 5, dtype=dtype), normal(5, 7, dtype=dtype)
    size = dtype.itemsize
    assert cost_of(lambda: a @ b) == Cost(2 * 3 * 5 * 7, (15 + 35) * size, 21 * size)


@pytest.mark.parametrize(
    ("name", "call", "flops"),
    [
        ("bmm", lambda: normal(4, 3, 5).bmm(normal(4, 5, 7)), 2 * 4 * 3 * 5 * 7),
        ("mv", lambda: normal(3, 5) @ normal(5), 2 * 3 * 5),
        ("dot", lambda: normal(5) @ normal(5), 2 * 5),
        ("linear", lambda: F.linear(normal(2, 3, 5), normal(7, 5)), 2 * 6 * 5 * 7),
        ("bias", lambda: F.linear(normal(2, 3, 5), normal(7, 5), normal(7)), 2 * 6 * 5 * 7 + 6 * 7),
        ("addmv", lambda: torch.addmv(normal(3), normal(3, 5), normal(5)), 2 * 3 * 5 + 3),
        ("einsum", lambda: torch.einsum("bij,kj->bik", normal(4, 3, 5), normal(7, 5)), 840),
        ("outer", lambda: torch.outer(normal(3), normal(5)), 15),
        ("conv1d", lambda: F.conv1d(normal(2, 4, 9), normal(6, 4, 3)), 2 * (2 * 6 * 7) * (4 * 3)),
        (
            "depthwise, bias",
            lambda: F.conv1d(normal(2, 4, 9), normal(4, 1, 3), normal(4), groups=4),
            (2 * 4 * 7) * (2 * 3 + 1),
        ),
        (
            "transposed",
            lambda: F.conv_transpose1d(normal(2, 4, 9), normal(4, 6, 3)),
            2 * (2 * 4 * 9) * (6 * 3),
        ),
        (
            "int8",
            lambda: torch._int_mm(
                torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)
            ),
            2 * 32 * 16 * 8,
        ),
    ],
)
def test_products(name, call, flops):
    assert cost_of(call).flops == flops


@pytest.mark.parametrize("beta", [0, 1])
def test_a_product_added_to_self_skips_self_at_beta_zero(beta):
    base, a, b = normal(4, 3, 7), normal(4, 3, 5), normal(4, 5, 7)
    cost = cost_of(lambda: torch.baddbmm(base, a, b, beta=beta, alpha=0.5))
    assert cost == Cost(840 + beta * 84, (60 + 140 + beta * 84) * 4, 84 * 4)


# Grouped-query attention


def test_repeat_interleave_writes_a_copy_for_each_query_head():
    k = normal(B, K, S, H)
    assert cost_of(lambda: k.repeat_interleave(N // K, dim=1)) == Cost(0, KV_BYTES, 3 * KV_BYTES)


def test_a_broadcast_product_copies_the_keys_for_each_query_head():
    q, k = normal(B, K, N // K, T, H), normal(B, K, 1, S, H)
    product = cost_of(lambda: q @ k.transpose(-1, -2))
    scores = B * N * T * S
    assert product.flops == 2 * scores * H
    # read: keys to copy them, then queries and copies; written: copies and scores
    assert product.bytes_read == KV_BYTES + B * N * T * H * 4 + 3 * KV_BYTES
    assert product.bytes_written == 3 * KV_BYTES + scores * 4


@pytest.mark.parametrize("capacity", [S, S + 5])
def test_a_grouped_product_reads_the_keys_once(capacity):
    k = normal(B, K, capacity, H)[:, :, :S]
    q = normal(B, N, T, H)
    grouped = cost_of(lambda: q.view(B, K, N // K * T, H) @ k.transpose(-1, -2))
    einsum = cost_of(lambda: torch.einsum("bkgth,bksh->bkgts", q.view(B, K, N // K, T, H), k))
    scores = B * N * T * S
    expected = Cost(2 * scores * H, B * N * T * H * 4 + KV_BYTES, scores * 4)
    assert grouped == expected
    assert einsum == expected


@pytest.mark.parametrize("inference", [False, True])
def test_scaled_dot_product_attention_with_groups_and_mask_copies_nothing(inference):
    q, k, v = normal(B, N, T, H), normal(B, K, S, H), normal(B, K, S, H)
    mask = torch.ones(B, 1, T, S, dtype=torch.bool)
    with torch.inference_mode(inference), CostCounter() as counter:
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    kernel = counter.by_op["aten._scaled_dot_product_flash_attention_for_cpu"].cost
    pairs = B * N * T * S
    assert kernel.flops == 4 * pairs * H + 7 * pairs
    float_mask = B * T * S * 4  # torch turns the boolean mask into numbers first
    assert kernel.bytes_read == B * N * T * H * 4 + 2 * KV_BYTES + float_mask
    assert kernel.bytes_written == B * N * T * (H + 1) * 4  # result, and log of the weights' sums
    assert counter.cost.bytes_written - kernel.bytes_written == float_mask + 2 * 4
    assert counter.cost.flops == kernel.flops


def test_causal_attention_counts_all_pairs():
    q, k, v = normal(B, N, S, H), normal(B, N, S, H), normal(B, N, S, H)
    flops = cost_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)).flops
    assert flops == B * N * S * S * (4 * H + 6)


def test_attention_by_hand_and_by_kernel_count_alike():
    q, k, v = normal(B, N, T, H), normal(B, N, S, H), normal(B, N, S, H)
    by_hand = cost_of(lambda: ((q @ k.mT) * H**-0.5).softmax(-1) @ v)
    kernel = cost_of(lambda: F.scaled_dot_product_attention(q, k, v))
    assert by_hand.flops == kernel.flops


# Element-wise work, reductions, copies


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x + 1, Cost(20, 80, 80)),
        (lambda x: x * x, Cost(20, 80, 80)),  # one tensor, read once
        (lambda x: x + x.clone(), Cost(20, 80 + 160, 80 + 80)),
        (lambda x: x * x[:, :1], Cost(20, 80 + 16, 80)),
        (lambda x: x.unsqueeze(2) * x.unsqueeze(1), Cost(100, 80 + 80, 400)),
        (lambda x: x > 0, Cost(20, 80, 20)),
        (lambda x: x.exp_(), Cost(20, 80, 80)),
        (lambda x: torch.exp(x, out=torch.empty(4, 5)), Cost(20, 80, 80)),
        (lambda x: x.sum(), Cost(20, 80, 4)),
        (lambda x: x.mean(0), Cost(20, 80, 20)),
        (lambda x: x.amax(-1), Cost(20, 80, 16)),
        (lambda x: x.argmax(-1), Cost(20, 80, 4 * 8)),
        (lambda x: x.cumsum(-1), Cost(20, 80, 80)),
        (lambda x: x.softmax(-1), Cost(100, 80, 80)),
        (lambda x: F.silu(x), Cost(20, 80, 80)),
        (lambda x: x.to(torch.bfloat16), Cost(0, 80, 40)),
        (lambda x: x.to(torch.float32), Cost()),
        (lambda x: x.t().contiguous(), Cost(0, 80, 80)),
        (lambda x: x.contiguous(), Cost()),
        (lambda x: torch.cat([x, x[:1]]), Cost(0, 100, 100)),
        (lambda x: x.where(x.isnan(), 0), Cost(20, 80 + 80 + 20 + 4, 20 + 4 + 80)),
        (lambda x: torch.zeros(3, 4), Cost(0, 0, 48)),
        (lambda x: torch.zeros_like(x), Cost(0, 0, 80)),
        (lambda x: x.new_zeros(2), Cost(0, 0, 8)),
        (lambda x: torch.empty(100), Cost()),
        (lambda x: x.zero_(), Cost(0, 0, 80)),
        (lambda x: x.fill_(1), Cost(0, 0, 80)),
        (lambda x: torch.arange(4) + 1, Cost(0, 32, 64)),  # integers are no FLOPs
        (lambda x: x[0, 0].item(), Cost(0, 4, 0)),
    ],
)
def test_elementwise(call, expected):
    x = normal(4, 5)
    assert cost_of(lambda: call(x)) == expected


def test_views_cost_nothing():
    x = normal(4, 6)

    def views():
        x.view(2, 12).t()[:, 1:].unsqueeze(0).expand(3, -1, -1).detach()
        x.reshape(3, 8).unfold(1, 2, 1).movedim(0, 1).chunk(2)
        len(x), x.shape, x.dtype, x.stride(), list(x)

    assert cost_of(views) == Cost()


def test_an_expanded_tensor_is_read_once():
    x, y = normal(1, 5).expand(4, 5), normal(4, 5)
    assert cost_of(lambda: x + y) == Cost(20, 20 + 80, 80)
    assert cost_of(lambda: x.contiguous()) == Cost(0, 20, 80)


def test_overlapping_windows_are_read_once():
    windows = normal(10).unfold(0, 4, 1)  # [7, 4] over 10 elements
    assert cost_of(lambda: windows.clone()) == Cost(0, 40, 7 * 4 * 4)


# Reading and writing parts of a large tensor

CACHE_SHAPE = (2, 3, 1000, 4)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda c: c[:, :, 5:7].copy_(torch.empty(2, 3, 2, 4)), Cost(0, 192, 192)),
        (lambda c: c[1].fill_(0), Cost(0, 0, 48_000)),
        # 3 places of [3, 4] numbers, and two indices of 3
        (
            lambda c: c.__setitem__(
                (torch.tensor([0, 1, 1]), slice(None), torch.tensor([7, 2, 5])),
                torch.empty(3, 3, 4),
            ),
            Cost(0, 144 + 48, 144),
        ),
        (
            lambda c: c.__setitem__((torch.tensor([0, 1]), slice(None), torch.tensor([7, 2])), 0.0),
            Cost(0, 4 + 32, 96),
        ),
        (
            lambda c: c.index_copy_(2, torch.tensor([3, 9]), torch.empty(2, 3, 2, 4)),
            Cost(0, 192 + 16, 192),
        ),
        (
            lambda c: c.index_add_(2, torch.tensor([3, 9]), torch.empty(2, 3, 2, 4)),
            Cost(48, 192 + 16 + 192, 192),
        ),
        (lambda c: c.index_fill_(2, torch.tensor([3, 9]), 0.0), Cost(0, 16, 192)),
    ],
)
def test_writing_into_a_part_counts_the_part(write, expected):
    cache = torch.zeros(CACHE_SHAPE)
    assert cost_of(lambda: write(cache)) == expected


def test_scatter_counts_the_elements_of_the_index():
    cache, index, source = (
        torch.zeros(CACHE_SHAPE),
        torch.zeros(2, 3, 1, 4).long(),
        normal(2, 3, 8, 4),
    )
    assert cost_of(lambda: cache.scatter_(2, index, source)) == Cost(0, 24 * 8 + 24 * 4, 24 * 4)
    added = cost_of(lambda: cache.scatter_add_(2, index, source))
    assert added == Cost(24, 24 * 8 + 24 * 4 + 24 * 4, 24 * 4)


def test_a_mask_writes_where_it_is_true():
    scores, mask = normal(2, 3, 4), torch.tensor([True, False, False, True])
    assert cost_of(lambda: scores.masked_fill_(mask, 0)) == Cost(0, 4, 2 * 3 * 2 * 4)
    values = normal(4, 2, 3)
    assert cost_of(lambda: values.__setitem__(mask, 0.0)) == Cost(0, 4 + 4, 2 * 6 * 4)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda c, i: c[:, :, i], Cost(0, 192 + 16, 192)),
        (lambda c, i: c.index_select(2, i), Cost(0, 192 + 16, 192)),
        (lambda c, i: c.gather(2, i.view(1, 1, 2, 1).expand(2, 3, 2, 4)), Cost(0, 192 + 16, 192)),
        (lambda c, i: F.embedding(i, c[0, 0]), Cost(0, 32 + 16, 32)),
    ],
)
def test_gathering_counts_the_elements_gathered(read, expected):
    cache, index = torch.zeros(CACHE_SHAPE), torch.tensor([3, 9])
    assert cost_of(lambda: read(cache, index)) == expected


# Autograd


def test_the_backward_pass_of_a_product_is_two_products():
    x, w = normal(4, 5).requires_grad_(), normal(5, 3).requires_grad_()
    y = x @ w
    grad = normal(4, 3)
    assert cost_of(lambda: y.backward(grad)).flops == 2 * (2 * 4 * 5 * 3)


def test_the_backward_pass_of_attention_counts():
    q = normal(B, N, S, H).requires_grad_()
    k, v = normal(B, K, S, H), normal(B, K, S, H)
    flops = cost_of(
        lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True).sum().backward()
    ).flops
    pairs = B * N * S * S
    assert flops == pairs * (4 * H + 6) + B * N * S * H + pairs * (10 * H + 8)


# Leaving torch

DOORS = [
    lambda x: x.numpy(),
    lambda x: np.asarray(x),
    lambda x: np.from_dlpack(x),
    lambda x: x.tolist(),
    lambda x: x.data_ptr(),
    lambda x: x.untyped_storage(),
    lambda x: pickle.dumps(x),
    lambda x: x.apply_(lambda number: number + 1),
]


@pytest.mark.parametrize("door", DOORS)
def test_leaving_torch_is_an_error(door):
    with pytest.raises(LeftTorch, match="torch operations"), CostCounter():
        door(normal(4, 5))
    door(normal(4, 5))  # and none without a counter


def test_an_operator_that_is_not_torchs_is_an_error():
    with torch.library._scoped_library("staff_test", "DEF") as library:
        library.define("hidden(Tensor x) -> Tensor")
        library.impl("hidden", lambda x: x + 1, "CPU")
        with pytest.raises(LeftTorch, match=r"staff_test\.hidden"), CostCounter():
            torch.ops.staff_test.hidden(normal(4))


def test_bookkeeping_may_leave_torch():
    lengths, x = torch.tensor([3, 5]), normal(4, 5)
    with CostCounter() as counter:
        assert lengths.tolist() == [3, 5]
        assert int(lengths[1]) == 5
        assert bool((lengths > 2).all())
        assert list(range(lengths[0])) == [0, 1, 2]
        assert len(x) == 4
        assert x[: lengths[0]].shape == (3, 5)
        assert isinstance(x[0, 0].item(), float)
        copy.deepcopy(x)
    assert counter.cost.flops == 0


def test_printing_is_free():
    x = normal(40, 50)
    assert cost_of(lambda: f"{x} {x!r} {x[0, 0]:.3f}") == Cost()


# The counter itself


def test_suspended_work_is_neither_counted_nor_forbidden():
    x = normal(4, 5)
    with CostCounter() as counter:
        with counting_suspended():
            (x @ x.t()).numpy()
        x + 1
    assert counter.cost == Cost(20, 80, 80)


def test_an_outer_counter_counts_what_an_inner_one_does():
    x = normal(4, 5)
    with CostCounter() as outer:
        x + 1
        with CostCounter() as inner, torch.inference_mode():
            F.linear(x, x)
        x + 1
    assert inner.cost == Cost(2 * 4 * 5 * 4, 160, 64)
    assert outer.cost == inner.cost + Cost(40, 160, 160)


def test_counts_stay_after_the_block_even_one_left_by_an_error():
    x, counter = normal(4, 5), CostCounter()
    with pytest.raises(ZeroDivisionError), counter:
        x + 1
        raise ZeroDivisionError
    x + 1
    assert counter.cost == Cost(20, 80, 80)
    with pytest.raises(dataclasses.FrozenInstanceError):
        counter.cost.flops = 0
    with pytest.raises(TypeError):
        counter.by_op["aten.add"] = None
    with pytest.raises(RuntimeError, match="new one"), counter:
        pass


def test_the_table_has_a_line_for_each_operator():
    x = normal(4, 5)
    with CostCounter() as counter:
        x.exp() @ (x + 1).t() + x.new_zeros(())
    lines = counter.table().splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["aten.add", "2"], ["aten.mm", "1"], ["aten.exp", "1"],
        ["aten.new_zeros", "1"], ["aten.t", "1"], ["total", "6"],
    ]  # fmt: skip
    assert f"{counter.cost.flops:,}" in lines[-1]


def test_counting_does_not_change_results():
    q, k = normal(B, K, N // K, T, H), normal(B, K, 1, S, H)
    plain = (q @ k.mT).softmax(-1)
    with CostCounter():
        counted = (q @ k.mT).softmax(-1)
    assert torch.equal(plain, counted)
