"""The least bytes that sections on kernels print are those that the tests charge for."""

from __future__ import annotations

import math

import pytest
import torch

from assignment.provided.lab.kernel import lab
from assignment.provided.speculative import Draft
from solutions.kernels.rejection_sampling import rejection_sampling
from tests.kernels import int4_inputs, latent_kernel_inputs, linear_inputs, rejection_inputs


def test_latent_decode():
    c, r, width, block = 48, 16, 2, 16
    for heads, lengths, splits in ((16, [5, 33], 1), (33, [0, 17, 100], 3), (128, [64], 7)):
        queries = torch.empty(len(lengths), heads, c).half()
        latents = [torch.empty(length, c) for length in lengths]
        arguments = [queries, queries, torch.empty(9, block, c + r).half()]
        drawn = latent_kernel_inputs.Latent(arguments, latents, latents)
        tiles = math.ceil(heads / 32)
        printed = 0
        for length in lengths:
            blocks = math.ceil(length / block)
            printed += tiles * (width * (c + r) * length + 4 * blocks + 4 * splits)
            printed += splits * width * heads * (c + r) + width * heads * c
            printed += 2 * 4 * splits * heads * (c + 1) if splits > 1 else 0
        assert latent_kernel_inputs.least_bytes(drawn, splits) == printed


def test_int4_matmul():
    for rows, inputs, outputs, group in ((1, 576, 300, 128), (130, 100, 128, 8), (64, 7, 1, 64)):
        x, groups = torch.empty(rows, inputs).half(), math.ceil(inputs / group)
        words, zero_words = math.ceil(inputs / 8), math.ceil(groups / 8)
        arguments = [
            x,
            *(torch.empty(outputs, n).int() for n in (words, groups, zero_words)),
            group,
        ]
        drawn = int4_inputs.Int4(arguments, torch.empty(outputs, inputs), torch.empty(0))
        printed = math.ceil(rows / 64) * 4 * outputs * (words + groups + zero_words)
        printed += math.ceil(outputs / 128) * 2 * rows * inputs + 2 * rows * outputs
        assert int4_inputs.least_bytes(drawn) == printed
        parts = 2 * 4 * 5 * rows * outputs
        assert int4_inputs.least_bytes(drawn, 5) == printed + parts


def test_chunked_linear_attention():
    for heads, lengths, d, e in ((3, [5, 0, 70], 64, 130), (1, [1], 16, 64)):
        tokens, batch = sum(lengths), len(lengths)
        q = torch.empty(tokens, heads, d).half()
        state = torch.empty(batch, heads, d, e)
        drawn = linear_inputs.Linear([q, q, q, q, state], lengths)
        tiles = math.ceil(e / 64)
        of_tiles = tiles * (tokens * (2 * d * 2 + 4) + 8 * batch)
        printed = heads * (2 * 4 * batch * d * e + 2 * tokens * e * 2 + of_tiles)
        assert linear_inputs.least_bytes(drawn) == printed


def test_rejection_sampling():
    counts, ends, v, p, most = [3, 0, 2, 3], [1, 0, 2, 0], 50, 40, 4
    tokens, num_draft = torch.zeros(4, most).long(), torch.tensor(counts)
    q = torch.empty(4, most + 1, v)
    for sure in (False, True):
        draft = Draft(tokens, num_draft, None if sure else torch.empty(4, most, p))
        printed = 0
        for count, end in zip(counts, ends, strict=True):
            looked_at, is_recovered = min(count, end + 1), end < count and not sure
            of_one = 8 + 4 + (4 if sure else 8)
            printed += 4 * v + 4 * min(p, v) * is_recovered + looked_at * of_one
            printed += 4 + num_draft.element_size() + 8 * (most + 1)
        assert rejection_inputs.least_bytes(draft, q, ends) == printed


@pytest.mark.parametrize("accepted", [True, False])
def test_the_reference_reads_no_more(accepted):
    """Of a row 1 + 1/32 or so, and a few numbers."""
    vocab = 32_768
    p, q = torch.zeros(1, 4, vocab), torch.full((1, 5, vocab), 1 / vocab)
    p[:, :, 7] = 1 / vocab if accepted else 1
    tokens, uniforms = torch.full((1, 4), 7), torch.full((1, 5), 0.5)
    with lab() as seen:
        rejection_sampling(tokens, torch.tensor([4]), p, q, uniforms)
    [only] = seen.launches
    rows = {
        name: only.loaded[name].requested / (4 * vocab) for name in ("draft_probs", "target_probs")
    }
    assert rows["target_probs"] == pytest.approx(1 + 1 / 32, abs=1e-3)
    assert rows["draft_probs"] == pytest.approx(0 if accepted else 1 + 1 / 32, abs=1e-3)
