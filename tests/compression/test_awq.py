"""compression.awq: scales by the activations, folded into what comes before, and clips."""

from __future__ import annotations

import pytest
import torch

from submission.compression.awq import (
    awq,
    channel_magnitude,
    clipped,
    fold,
    output_error,
    over_group,
    rounded,
    scale_of,
    search_scale,
)
from submission.provided.models import Llama
from tests.compression import oracles_awq as oracles
from tests.compression.awq_inputs import (
    ROOM,
    assert_at_most,
    assert_best_clip,
    assert_best_scale,
    assert_near,
    assert_unchanged,
    draw_salient,
    draw_weights,
)
from tests.compression.awq_models import (
    GROUPED,
    MULTI_HEAD,
    UNTIED,
    assert_as_near,
    assert_codes_alone,
    assert_computes_with_its_codes,
    assert_norms_have_scales,
    assert_not_clipped,
    block_errors,
    dequantized,
    draw_model,
    folded_anyhow,
    plain,
    to_nearest,
)
from tests.grading.closeness import assert_close, assert_equal

MODELS = pytest.mark.parametrize("config", [GROUPED, UNTIED, MULTI_HEAD], ids=["6/2", "4/2", "3/3"])
# Of rows of 40: two groups and a short one, one group of more than there is, one of just that.
CASES = [(4, 16), (3, 16), (4, 64), (3, 40)]


@pytest.mark.group("search")
class TestSearch:
    def test_magnitudes(self, draw):
        for shape in ((50, 9), (3, 11, 6), (1, 7), (2, 3, 4, 5)):
            x = draw.normal(*shape) * draw.normal(*shape[:-1], 1).exp() - 0.3
            assert_near(channel_magnitude(x), oracles.magnitude(x), axes="channel")
        x = (1 + draw.uniform(3, 700, 5)).bfloat16()
        got = channel_magnitude(x)
        assert got.dtype == torch.float32, f"expected float32, got {got.dtype}"
        assert_near(got, oracles.magnitude(x), axes="channel", what="in bfloat16", rounding=1e-5)

    def test_scales(self, draw):
        for magnitudes in (
            draw.normal(30).exp(),
            torch.tensor([2.0, 8.0, 0.5]),
            torch.tensor([0.0, 1e-6, 1e-4, 3e-4, 0.7]),
            torch.zeros(4),
        ):
            for alpha in (0.0, 0.05, 0.5, 0.95, 1.0):
                expected, got = oracles.scale_of(magnitudes, alpha), scale_of(magnitudes, alpha)
                assert_near(got, expected, axes="channel", what=f"alpha {alpha}", rounding=1e-5)

    @pytest.mark.parametrize("bits, group", CASES)
    def test_rounded(self, draw, bits, group):
        """On the grid, and no other step is nearer."""
        weight = torch.cat([*draw_weights(draw, 40), draw.uniform(2, 40) + 1, torch.zeros(1, 40)])
        got, steps = rounded(weight, bits, group), oracles.step_of(weight.double(), bits, group)
        assert_equal(list(got.shape), list(weight.shape), what="shape")
        off = (got.double() - weight.double()).abs() / steps
        assert_at_most(off.max().item(), 0.5001, "steps between a weight and what it becomes")
        places = got.double() / steps
        assert_at_most((places - places.round()).abs().max().item(), 1e-4, "steps off the grid")

    @pytest.mark.parametrize("bits, group", CASES)
    def test_errors(self, draw, bits, group):
        x = draw_salient(draw, 50, 40)
        for weight in draw_weights(draw, 40):
            for scale in (torch.ones(40), 0.3 + 3 * draw.uniform(40)):
                expected = oracles.error(weight, x, scale, bits, group)
                got = output_error(weight, x, scale, bits, group)
                assert_at_most(got, ROOM * expected, "error")
                assert_at_most(expected, ROOM * got, "error, the least it can be")

    @pytest.mark.parametrize("bits, group", CASES)
    def test_the_best_scale(self, draw, bits, group):
        for outputs in ((24,), (5, 40), (16, 3, 9)):
            weights, x = draw_weights(draw, 40, outputs), draw_salient(draw, 60, 40)
            assert_best_scale(search_scale, weights, x, bits, group)

    def test_for_all_readers_together(self, draw):
        """The best for one is not the best for the others, and the largest error decides."""
        x = draw_salient(draw, 60, 40)
        for large in range(3):
            weights = draw_weights(draw, 40, (12, 30, 6))
            for i, weight in enumerate(weights):
                weight[:, x.abs().mean(0) < 5] *= 1 if i == large else 30  # wants hardly a scale
                weight *= 1 if i == large else 1e-3
            assert_best_scale(search_scale, weights, x, 4, 16)

    def test_other_magnitudes(self, draw):
        for _ in range(3):
            x, magnitudes = draw_salient(draw, 60, 40), draw.normal(40).exp()
            assert_best_scale(search_scale, draw_weights(draw, 40), x, 3, 16, magnitudes)

    def test_no_alpha_beyond_the_list(self, draw):
        """Weights as small as their inputs are large: α = 1 would be better than all that there
        are."""
        sizes = (12 * draw.uniform(40)).exp()
        weights = [draw.normal(rows, 40).sign() / sizes for rows in (24, 7)]
        for group in (16, 64):
            assert_best_scale(search_scale, weights, draw.normal(60, 40) * sizes, 4, group)

    def test_the_smallest_of_equals(self, draw):
        weights, x = draw_weights(draw, 40), draw_salient(draw, 30, 40)
        for arguments in ((x, 4, 16, torch.ones(40)), (torch.zeros(8, 40), 4, 16, None)):
            scale, alpha = search_scale(weights, *arguments)
            assert_equal(alpha, 0.0, what="alpha, where all are equally good")
            assert_close(scale, torch.ones(40), axes="channel")

    @pytest.mark.parametrize("bits", [4, 3])
    def test_salient_channels_and_others(self, draw, bits):
        """The loud channels' own scales save most of the error. As scales of other channels they
        save nothing: it is the activations that say which weights matter."""
        weights, x, channels = [draw.normal(48, 128)], draw.normal(100, 128), draw.permutation(128)
        loud, others = channels[:2], channels[2:4]
        x[:, loud] *= 50.0
        magnitudes = oracles.magnitude(x).float()
        moved = magnitudes.index_copy(0, others, magnitudes[loud])
        moved[loud] = magnitudes[others]
        nearest = oracles.error(weights[0], x, torch.ones(128), bits, 128)
        best, elsewhere = (
            oracles.error(weights[0], x, search_scale(weights, x, bits, 128, given)[0], bits, 128)
            for given in (None, moved)
        )
        assert_at_most(best, 0.4 * nearest, "error with scales (0.4 of that without)")
        assert_at_most(0.8 * nearest, elsewhere, "0.8 of that without, others' scales")

    def test_arguments_are_not_changed(self, draw):
        weights, x, scale = draw_weights(draw, 40), draw_salient(draw, 30, 40), draw.uniform(40) + 1
        assert_unchanged(channel_magnitude, x)
        assert_unchanged(scale_of, torch.tensor([0.0, 1.0, 4.0]), 0.5)
        assert_unchanged(rounded, weights[0], 4, 16)
        assert_unchanged(output_error, weights[0], x, scale, 4, 16)
        assert_unchanged(search_scale, weights, x, 4, 16, scale)


@pytest.mark.group("folding")
class TestFolding:
    def test_into_a_norm(self, draw):
        for outputs in ((5,), (24, 7, 3)):
            norm, weights, scale = (
                draw.normal(9),
                draw_weights(draw, 9, outputs),
                draw.normal(9).exp(),
            )
            divided, scaled = fold(norm, weights, scale)
            assert_near(divided, norm.double() / scale.double(), axes="channel", what="norm")
            self._assert_scaled(scaled, weights, scale)

    def test_into_a_linear_layer(self, draw):
        for width in (9, 4, 13):  # as wide as it is long, too
            previous, scale = draw.normal(9, width), draw.normal(9).exp()
            weights = draw_weights(draw, 9, (6, 9))
            divided, scaled = fold(previous, weights, scale)
            rows = [row.double() / s for row, s in zip(previous, scale.tolist(), strict=True)]
            assert_near(divided, torch.stack(rows), axes="output input", what="previous weight")
            self._assert_scaled(scaled, weights, scale)

    def test_heads_that_share(self, draw):
        for heads, kv_heads, width in ((6, 2, 5), (9, 3, 4), (8, 4, 3), (3, 3, 7), (5, 1, 2)):
            magnitudes = draw.normal(heads * width).exp()
            expected = oracles.over_group(magnitudes.double(), heads, kv_heads)
            got = over_group(magnitudes, heads, kv_heads)
            assert_near(got, expected, axes="channel", what=f"{heads} query heads on {kv_heads}")

    @MODELS
    def test_a_whole_model_computes_the_same(self, draw, config):
        model, tokens = draw_model(draw, config), draw.integers(0, config.vocab_size, 3, 11)
        state = folded_anyhow(draw, model, fold, over_group)
        expected, got = (plain(config, held)(tokens) for held in (model.state_dict(), state))
        assert_near(got, expected, axes="row place token", what="logits", rounding=1e-4)

    def test_arguments_are_not_changed(self, draw):
        weights, scale = draw_weights(draw, 9), draw.normal(9).exp()
        for previous in (draw.normal(9), draw.normal(9, 4)):
            assert_unchanged(fold, previous, weights, scale)
        assert_unchanged(over_group, draw.uniform(12), 6, 2)

    def _assert_scaled(self, got, weights, scale):
        assert_equal(len(got), len(weights), what="number of weights")
        for scaled, weight in zip(got, weights, strict=True):
            expected = weight.double() * scale.double()
            assert_near(scaled, expected, axes="output input", what="weight of a reader")


@pytest.mark.group("clipping")
class TestClipping:
    @pytest.mark.parametrize("bits, group", [*CASES, (2, 16), (4, 1)])
    def test_the_best_ratio_of_each_group(self, draw, bits, group):
        weight, x = self._draw(draw)
        assert_best_clip(clipped, weight, x, bits, group)
        assert_best_clip(clipped, weight, draw_salient(draw, 3, 40), bits, group)

    def test_all_of_one_sign_and_zeros(self, draw):
        weight, x = self._draw(draw)
        weight[:5], weight[5:10] = weight[:5].abs() + 0.1, -weight[5:10].abs() - 0.1
        weight[10:13], weight[13:16, :16] = 0.0, 0.0
        assert_best_clip(clipped, weight, x, 3, 16)

    def test_the_largest_of_equals(self, draw):
        """Where no input comes, all are equally good."""
        weight, x = self._draw(draw)
        x[:, 16:32] = 0
        got = clipped(weight, x, 3, 16)[:, 16:32]
        assert_near(got, weight[:, 16:32], axes="output input", what="columns from 16 on")

    def test_a_large_weight_that_is_hardly_read(self, draw):
        """It makes the steps of all others coarse: clipping saves more than half of the error."""
        weight, x = draw.normal(30, 64), draw.normal(80, 64)
        weight[:, 5], x[:, 5] = 16.0, 0.01 * x[:, 5]
        states = weight, clipped(weight, x, 3, 64)
        before, after = (
            ((oracles.rounded(state.double(), 3, 64) - weight) @ x.double().T).square().sum().item()
            for state in states
        )
        assert_at_most(after, before / 2, "error (half of that without clipping)")

    def test_arguments_are_not_changed(self, draw):
        assert_unchanged(clipped, *self._draw(draw), 3, 16)

    def _draw(self, draw):
        weight = torch.cat(draw_weights(draw, 40, (20, 9)))
        weight = weight * draw.normal(*weight.shape, scale=0.6).exp()  # a few are far out
        return weight, draw_salient(draw, 60, 40)


@pytest.mark.group("model")
class TestModel:
    @MODELS
    def test_each_part(self, draw, config):
        model, tokens = self._draw(draw, config)
        result = awq(self._there(model), tokens, 4, 16)
        assert_norms_have_scales(model, dequantized(result), tokens, 4, 16)
        assert_not_clipped(model, dequantized(result), 4, 16)
        assert_computes_with_its_codes(result, draw.integers(0, config.vocab_size, 2, 9))

    @pytest.mark.parametrize(
        "config, bits, group",
        [(GROUPED, 4, 16), (UNTIED, 3, 32), (MULTI_HEAD, 3, 16)],
        ids=["6/2", "4/2", "3/3"],
    )
    def test_as_near_as_can_be(self, draw, config, bits, group):
        """Each part of each layer: no further from the model's than AWQ's in float64, and much
        nearer than without."""
        model, tokens = self._draw(draw, config)
        got, expected, nearest = (
            block_errors(model, weights, tokens)
            for weights in (
                dequantized(awq(self._there(model), tokens, bits, group)),
                oracles.awq(model, tokens, bits, group),
                to_nearest(model, bits, group),
            )
        )
        assert_as_near(got, expected, nearest)

    @pytest.mark.parametrize("bits, group", [(4, 16), (3, 64)])
    def test_codes_and_scales_alone(self, draw, bits, group):
        """No weight of a linear layer is left in high precision; all others are as they were."""
        model, tokens = self._draw(draw, UNTIED)
        result = awq(self._there(model), tokens, bits, group)
        assert_codes_alone(model, result, bits, group)
        state = result.state_dict()
        for name in ("embedding.weight", "norm.weight", "head.weight"):
            assert_equal(state[name], model.state_dict()[name], what=name)

    def test_again_for_another_model(self, draw):
        """Of the same sizes, on as many tokens: nothing is left of the first."""
        for _ in range(2):
            model, tokens = self._draw(draw, MULTI_HEAD)
            result = dequantized(awq(self._there(model), tokens, 4, 16))
            assert_norms_have_scales(model, result, tokens, 4, 16)

    def test_the_model_itself_stays(self, draw):
        """And the result keeps none of its weights."""
        model, tokens = self._draw(draw, GROUPED)
        theirs, before = self._there(model), dict(model.state_dict())
        result = awq(theirs, tokens, 4, 16)
        after = theirs.state_dict()
        assert_equal(sorted(after), sorted(before), what="names of the model's weights")
        for name, weight in before.items():
            assert_equal(after[name], weight, what=name)
        logits = result(tokens).detach().clone()
        theirs.load_state_dict({name: torch.zeros_like(w) for name, w in before.items()})
        assert_equal(result(tokens).detach(), logits, what="logits, after the model was changed")

    def _draw(self, draw, config):
        return draw_model(draw, config), draw.integers(0, config.vocab_size, 3, 40)

    def _there(self, model):
        theirs = Llama(model.config, seed=None)
        theirs.load_state_dict(dict(model.state_dict()))
        return theirs
