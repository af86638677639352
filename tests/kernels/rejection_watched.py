"""`rejection_sampling` in the lab, and what has to hold for every batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from assignment.provided.speculative import Draft
from tests.grading.closeness import assert_equal
from tests.grading.kernels.boundary import Seen, in_lab
from tests.kernels.kernel_inputs import bits
from tests.kernels.oracles_rejection import assert_lossless, assert_round_of_each
from tests.kernels.rejection_inputs import every_outcome
from tests.speculative.law import Law, NextLaw
from tests.speculative.verification_rounds import Rounds, laws_given

__tracebackhide__ = True

ARGUMENTS = ("tokens", "num_draft", "draft_probs", "target_probs", "uniforms")


def check(
    sample: Callable, draw, draft: Draft, q: Tensor, uniforms: Tensor, integer_bits: int = 32
) -> Seen:
    """One launch, programs in an order of chance; what may come out does; arguments stay."""
    arguments = [draft.tokens, draft.num_draft, draft.probs, q.contiguous(), uniforms.contiguous()]
    before = [None if argument is None else argument.clone() for argument in arguments]
    seen = in_lab(sample, *arguments, seed=draw.seed(), integer_bits=integer_bits)
    launches = [launch.kernel for launch in seen.launches]
    assert len(launches) == 1, f"expected one launch, got {len(launches)}: {launches}"
    assert_round_of_each(seen.value, draft, q, uniforms)
    _assert_unchanged(seen.arguments, before)
    return seen


def given(sample: Callable, draw, draft: Draft, q: Tensor, uniforms: Tensor) -> Tensor:
    return check(sample, draw, draft, q, uniforms).value


def num_given(sample: Callable, draw, draft: Draft, q: Tensor, uniforms: Tensor) -> list[int]:
    return (given(sample, draw, draft, q, uniforms) >= 0).sum(dim=1).tolist()


def laws(sample: Callable, draw, *parts: Rounds) -> list[Law]:
    return laws_given(lambda *batch: given(sample, draw, *batch), list(parts), draw)


def check_law(
    sample: Callable, draw, p: NextLaw, q: NextLaw, counts: Sequence[int], sure: bool = False
) -> None:
    """Drafts of so many tokens, all in one batch, give the target's law."""
    parts = [every_outcome(draw, p, q, count, sure) for count in counts]
    for count, law in zip(counts, laws(sample, draw, *parts), strict=True):
        assert_lossless(law, p, q, count)


def assert_work_of_the_kernel(seen: Seen, rows: int, vocab_size: int) -> None:
    """Of so many rows, each of which has recovered a token in the place of its only one. NO_TOKEN
    may stand in the rest before."""
    (launch,) = seen.launches
    for what, got, least in (
        ("bytes loaded", launch.bytes_loaded, 2 * 4 * rows * vocab_size),
        ("bytes stored", launch.bytes_stored, 8 * rows),
        ("FLOPs", launch.vector_flops, 2 * rows * vocab_size),
    ):
        assert got >= least, f"{what} by the kernel: expected {least:,} or more, got {got:,}"
    most = 3.5 * rows * vocab_size  # once over all there is would be 3 for each token
    assert seen.cost.flops < most, f"torch did {seen.cost.flops:,} FLOPs in the launcher"


def _assert_unchanged(after: Sequence[Tensor | None], before: Sequence[Tensor | None]) -> None:
    """Bit by bit."""
    for name, old, new in zip(ARGUMENTS, before, after, strict=True):
        if old is not None:
            old, new = (bits(x) if x.is_floating_point() else x for x in (old, new))
            assert_equal(new, old, what=f"{name}, afterwards")
