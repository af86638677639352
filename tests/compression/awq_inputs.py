"""Weights and inputs for AWQ, and what a scale and a clip are held against.

A choice is judged by the error that it leaves: where two are almost equally good, either is right.
"""

from __future__ import annotations

import torch

from tests.compression import oracles_awq as oracles
from tests.grading.boundary import watch
from tests.grading.closeness import assert_close, assert_equal

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here

ROOM = 1.01  # a weight that lies between two steps may go to either


def draw_salient(draw, tokens, channels, loud=3):
    """Inputs of which a few channels are 15 to 30 times as large, and which go together."""
    x = draw.normal(tokens, channels) + draw.normal(tokens, 1) * draw.normal(channels)
    factors = torch.ones(channels)
    factors[draw.permutation(channels)[:loud]] = 15 + 15 * draw.uniform(loud)
    return x * factors


def draw_weights(draw, channels, outputs=(24, 7)):
    """Some weights of a row, and some rows, are larger than the others."""
    return [
        draw.normal(rows, channels)
        * draw.normal(rows, channels, scale=0.5).exp()
        * draw.normal(rows, 1).exp()
        for rows in outputs
    ]


def assert_near(got, expected, *, axes="", what="", rounding=2e-6):
    """Equal up to float32's rounding of a few steps."""
    naive = (expected.double() * (1 + rounding)).float()
    assert_close(got, expected.double(), naive=naive, axes=axes, what=what)


def assert_at_most(got, most, what):
    assert got <= most, f"{what}: expected at most {most:.4g}, got {got:.4g}"


def assert_unchanged(function, *arguments):
    _, changed = watch(function, *arguments)
    assert changed == [], f"an argument of {function} was changed, by its place: {changed}"


def assert_best_scale(search, weights, x, bits, group, magnitudes=None):
    """What `search` finds is the scale of an α of the list, and as good as the best of them."""
    given = [] if magnitudes is None else [magnitudes]
    scale, alpha = search(weights, x, bits, group, *given)
    assert any(abs(alpha - a) < 1e-6 for a in oracles.ALPHAS), f"alpha {alpha} is not listed"
    magnitudes = oracles.magnitude(x) if magnitudes is None else magnitudes
    expected = oracles.scale_of(magnitudes, alpha)
    assert_near(scale, expected, axes="channel", what=f"scale of {alpha:.2f}", rounding=1e-5)
    errors = oracles.errors(weights, x, magnitudes, bits, group)
    got = sum(oracles.error(weight, x, scale, bits, group) for weight in weights)
    best = oracles.ALPHAS[errors.index(min(errors))]
    what = f"error at alpha {alpha:.2f} (the best is {best:.2f})"
    assert_at_most(got, ROOM * min(errors), what)


def assert_best_clip(clip, weight, x, bits, group):
    """Each group of what `clip` makes is clamped by one of the ratios, and as well as can be."""
    got = clip(weight, x, bits, group)
    assert_equal(list(got.shape), list(weight.shape), what="shape")
    candidates, costs = oracles.clipped(weight, x, bits, group)
    for i, columns in enumerate(oracles.groups(weight, group)):
        largest = weight[:, columns].abs().amax(1)
        off = (candidates[:, :, columns] - got[:, columns]).abs().amax(2)
        is_it = off <= 1e-5 * largest  # [10 O]
        for row in range(len(weight)):
            what = f"row {row}, columns {columns.start} to {columns.stop - 1}"
            assert is_it[:, row].any(), f"{what}: clamped by none of the ratios"
            ratio = int(is_it[:, row].nonzero()[0])
            cost, least = costs[ratio, row, i].item(), costs[:, row, i].min().item()
            what = f"{what}: error with the ratio {oracles.RATIOS[ratio]:.2f}"
            assert_at_most(cost, ROOM * least + 1e-12, what)
