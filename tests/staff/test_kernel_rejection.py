"""What the reference of rejection sampling promises beyond what every submission is tested for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assignment.provided.lab.kernel import Lab, lab
from assignment.provided.speculative import Draft
from solutions.kernels.rejection_sampling import rejection_sampling
from solutions.speculative.verification import verify
from tests.grading.draw import Draw
from tests.kernels.kernel_costs import PARKED
from tests.kernels.rejection_inputs import draw_rounds, every_outcome, least_bytes
from tests.speculative.law import grid
from tests.speculative.verification_rounds import every_round, tables

ALMOST_ONCE = 1.02  # of a row, and of the tile in which the number falls once more
NAN = float("nan")


def sampled(draft: Draft, *others: Tensor, seed: int = 0) -> tuple[Tensor, Lab]:
    with lab(seed) as seen:
        out = rejection_sampling(draft.tokens, draft.num_draft, draft.probs, *others)
    seen.check()
    return out, seen


@pytest.mark.parametrize("vocab_size", [33_000, 49_152, 128_256])
@pytest.mark.parametrize("with_probs", [True, False])
def test_rows_that_are_drawn_from_are_read_once(vocab_size, with_probs):
    counts, ends = [3, 0, 2], [1, 0, 2]
    options = {"sampled": with_probs, "draft_vocab": vocab_size + 500}
    draft, *others = draw_rounds(Draw(0), counts, ends, vocab_size, **options)
    _, seen = sampled(draft, *others)
    (launch,) = seen.launches
    loaded = launch.loaded
    row, tile = 4 * vocab_size, 4 * launch.constants["TILE"]
    assert 3 * row <= loaded["target_probs"].requested <= 3 * ALMOST_ONCE * (row + tile)
    if with_probs:
        assert row <= loaded["draft_probs"].requested <= ALMOST_ONCE * (row + tile)
    assert loaded["tokens"].requested == 8 * sum(counts)
    assert launch.bytes_stored == 3 * 4 * 8
    least = least_bytes(draft, others[0], ends)
    assert least <= launch.bytes_loaded + launch.bytes_stored <= 1.035 * least
    assert seen.cost.flops == seen.cost.bytes == 0


def test_any_order_of_programs_gives_the_same_bits():
    batch = draw_rounds(Draw(1), [3, 0, 2, 4, 1], [1, 0, 2, 0, 1], 3000)
    first, second, third = (sampled(*batch, seed=seed)[0] for seed in range(3))
    assert torch.equal(first, second) and torch.equal(first, third)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("vocab_size", [49_152, 128_256])
@pytest.mark.parametrize("with_probs", [True, False])
def test_its_machine_code(vocab_size, with_probs, architecture):
    batch = draw_rounds(Draw(2), [4, 4], [2, 4], vocab_size, sampled=with_probs)
    (code,) = sampled(*batch)[1].compiled(architecture)
    assert code.spilled == 0
    assert code.programs_at_once >= 3
    narrow = 7 if with_probs else 6  # of the drafted tokens, and so on: once for each program
    assert code.loads - code.wide_loads <= narrow


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("width, vocab_size", [(0, 7), (1, 1000), (1, 1025), (8, 50_257)])
def test_it_compiles_for_any_size(width, vocab_size, architecture):
    """Triton makes a constant of an argument of 1, and scans of one element are its edge."""
    draft, *others = draw_rounds(Draw(3), [width] * 2, [width // 2, width], vocab_size)
    for counts in (draft.num_draft, draft.num_draft.int()):
        batch = Draft(draft.tokens, counts, draft.probs)
        (code,) = sampled(batch, *others)[1].compiled(architecture)
        assert code.spilled <= PARKED


class TestAsVerify:
    """Token for token, as the reference lays tokens on [0, 1) in the same order."""

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("with_probs", [True, False])
    def test_every_round(self, seed, with_probs):
        """All numbers lie in the middles of pieces."""
        draw = Draw(seed)
        p, q = tables(draw, (1, 1, 2), (0, 1, 3))
        if not with_probs:
            (p,) = tables(draw, (0, 0, 1))
        for make in (every_round, lambda *args: every_outcome(draw, *args)):
            rounds = make(p, q, 2, not with_probs)
            batch = rounds.draft, rounds.target_probs, rounds.uniforms
            assert torch.equal(sampled(*batch)[0], verify(*batch))

    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("wider", [-400, 0, 400])
    @pytest.mark.parametrize("with_probs", [True, False])
    def test_at_random(self, seed, wider, with_probs):
        """With NaN among the probabilities. Numbers near an edge of the last draw are left out."""
        draw = Draw(seed)
        counts = draw.integers(0, 5, 40)
        ends = (draw.uniform(40) * (counts + 1)).long()
        options = {"draft_vocab": 2500 + wider, "width": 4, "sampled": with_probs}
        draft, q, uniforms = draw_rounds(draw, counts.tolist(), ends.tolist(), 2500, **options)
        if with_probs:
            draft.probs.masked_fill_(draft.probs < 1e-5, NAN)
        q.masked_fill_(q < 1e-5, NAN)
        expected = verify(draft, q, uniforms)
        same = torch.ones(40, dtype=torch.bool)
        for shift in (-3e-6, 3e-6):
            nudged = uniforms.clone()
            nudged[:, -1] = (nudged[:, -1] + shift).clamp(0, 1 - 2.0**-24)
            same &= (verify(draft, q, nudged) == expected).all(dim=1)
        assert same.float().mean() > 0.9
        got, _ = sampled(draft, q, uniforms)
        assert torch.equal(got[same], expected[same])


def test_law_of_a_thousand_tokens():
    """500 numbers, evenly spread: what a token gets of them is less than one off."""
    draw = Draw(5)
    q = draw.normal(1000, scale=2).softmax(dim=-1)
    points = torch.cat([torch.zeros(500, 1), grid(500)], dim=1)
    draft = Draft(torch.zeros(500, 1).long(), torch.zeros(500).long())
    out, _ = sampled(draft, q.expand(500, 2, -1).contiguous(), points)
    counts = torch.bincount(out[:, 0], minlength=1000)
    assert (counts - 500 * q.double()).abs().max() < 1.001


def test_no_sequences():
    none = torch.zeros(0, 3, 7)
    out, seen = sampled(Draft(torch.zeros(0, 2).long(), torch.zeros(0).long()), none, none[:, :, 0])
    assert out.shape == (0, 3) and out.dtype == torch.int64 and not seen.launches
