"""Kernels for the tests of the kernel lab: what they move is known by hand."""

import triton
import triton.language as tl


@triton.jit
def copy(x, out, length, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < length), mask=at < length)


@triton.jit
def matmul(a, b, out, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    total = tl.zeros((TM, TN), tl.float32)
    for start in range(0, K, TK):
        inner = start + tl.arange(0, TK)
        left = tl.load(
            a + rows[:, None] * K + inner[None, :],
            mask=(rows < M)[:, None] & (inner < K)[None, :],
            other=0.0,
        )
        right = tl.load(
            b + inner[:, None] * N + columns[None, :],
            mask=(inner < K)[:, None] & (columns < N)[None, :],
            other=0.0,
        )
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total.to(out.dtype.element_ty),
        mask=(rows < M)[:, None] & (columns < N)[None, :],
    )


@triton.jit
def gather(x, index, out, length, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Rows of x by index, `TILE` of them a program."""
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    row = tl.load(index + at, mask=at < length, other=0)
    column = tl.arange(0, WIDTH)
    values = tl.load(x + row[:, None] * WIDTH + column[None, :], mask=(at < length)[:, None])
    tl.store(out + at[:, None] * WIDTH + column[None, :], values, mask=(at < length)[:, None])


@triton.jit
def softmax_of(x):
    top = tl.exp(x - tl.max(x, 0))
    return top / tl.sum(top, 0)


@triton.jit
def paged_scores(
    query, cache, table, lengths, out, table_stride,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    MOST: tl.constexpr,
):  # fmt: skip
    """Σ over tokens of softmax-free scores: reads every cached token's row once a KV head."""
    row, head = tl.program_id(0), tl.program_id(1)
    member, column, slot = tl.arange(0, GROUP), tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    length = tl.load(lengths + row)
    heads = (row * KV_HEADS + head) * GROUP + member
    q = tl.load(query + heads[:, None] * WIDTH + column[None, :])
    total = tl.zeros((GROUP,), tl.float32)
    for i in range(0, tl.cdiv(length, BLOCK)):
        block = tl.load(table + row * table_stride + i).to(tl.int64)
        alive = i * BLOCK + slot < length
        place = ((block * BLOCK + slot) * KV_HEADS + head) * WIDTH
        keys = tl.load(cache + place[:, None] + column[None, :], mask=alive[:, None], other=0.0)
        total += tl.sum(tl.dot(q, tl.trans(keys), input_precision="ieee"), 1)
    tl.store(out + heads, total)


@triton.jit
def histogram(x, counts, length, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.atomic_add(counts + tl.load(x + at, mask=at < length, other=0), 1, mask=at < length)


@triton.jit
def plus_one_by_block_pointer(x, out, M, N, TM: tl.constexpr, TN: tl.constexpr):
    start = (tl.program_id(0) * TM, 0)
    source = tl.make_block_ptr(x, (M, N), (N, 1), start, (TM, TN), (1, 0))
    target = tl.make_block_ptr(out, (M, N), (N, 1), start, (TM, TN), (1, 0))
    tile = tl.load(source, boundary_check=(0, 1), padding_option="zero")
    tl.store(target, tile + 1, boundary_check=(0, 1))


@triton.jit
def plus_one_by_descriptor(x, out, M, N, TM: tl.constexpr, TN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[TM, TN])
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[TM, TN])
    target.store([tl.program_id(0) * TM, 0], source.load([tl.program_id(0) * TM, 0]) + 1)


@triton.jit
def shifted(x, out, by, LENGTH: tl.constexpr):
    at = tl.arange(0, LENGTH)
    tl.store(out + at, tl.load(x + at + by))


@triton.jit
def last_one_adds_up(x, partial, out, PROGRAMS: tl.constexpr, TILE: tl.constexpr):
    """The last program reads what the others wrote, with nothing that makes it wait."""
    program = tl.program_id(0)
    tl.store(partial + program, tl.sum(tl.load(x + program * TILE + tl.arange(0, TILE))))
    if program == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(partial + tl.arange(0, PROGRAMS))))


@triton.jit
def all_write_the_first(out):
    tl.store(out, tl.program_id(0))


@triton.jit
def read_then_overwritten(x, out, TILE: tl.constexpr):
    """Each program reads the row of the next, which that one overwrites."""
    program, at = tl.program_id(0), tl.arange(0, TILE)
    following = (program + 1) % tl.num_programs(0)
    tl.store(out + program * TILE + at, tl.load(x + following * TILE + at))
    tl.store(x + program * TILE + at, tl.zeros((TILE,), tl.float32))


@triton.jit
def without_other(x, out, LENGTH: tl.constexpr, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out, tl.sum(tl.load(x + at, mask=at < LENGTH), 0))


@triton.jit
def masked_by_two_widths(x, wanted, out, length, TILE: tl.constexpr):
    """A mask of int32 & one of int64."""
    at = tl.arange(0, TILE)
    mask = (at < length) & (tl.load(wanted).to(tl.int64) >= 0)
    tl.store(out + at, tl.load(x + at, mask=mask, other=0.0), mask=mask)


@triton.jit
def from_a_number(address, out):
    tl.store(out, tl.load(address.to(tl.pointer_type(tl.float32))))


@triton.jit
def arithmetic(x, y, wide, out, flags, LENGTH: tl.constexpr):
    """One row of `out` for each operation on bfloat16."""
    at = tl.arange(0, LENGTH)
    a, b, c = tl.load(x + at), tl.load(y + at), tl.load(wide + at)
    tl.store(out + at, a + b)
    tl.store(out + LENGTH + at, a * b)
    tl.store(out + 2 * LENGTH + at, a / b)
    tl.store(out + 3 * LENGTH + at, -a)
    tl.store(out + 4 * LENGTH + at, tl.where(a > b, a, b))
    tl.store(out + 5 * LENGTH + at, c.to(tl.bfloat16))
    tl.store(out + 6 * LENGTH + at, tl.maximum(a, b))
    tl.store(out + 7 * LENGTH + at, tl.abs(a))
    tl.store(out + 8 * LENGTH + at, a * 2.0 + 1.0)
    tl.store(out + 9 * LENGTH + at, (a.to(tl.float32) * 3).to(tl.int32).to(tl.bfloat16))
    tl.store(flags + at, (a < b).to(tl.int32))
    tl.store(flags + LENGTH + at, (a == b).to(tl.int32))
    tl.store(flags + 2 * LENGTH + at, a.to(tl.int32))


@triton.jit
def reductions(x, out, positions, LENGTH: tl.constexpr):
    at = tl.arange(0, LENGTH)
    a = tl.load(x + at)
    tl.store(out, tl.sum(a, 0))
    tl.store(out + 1, tl.max(a, 0))
    tl.store(out + 2, tl.min(a, 0))
    tl.store(positions, tl.argmax(a, 0))
    tl.store(out + 3 + at, tl.cumsum(a, 0))
