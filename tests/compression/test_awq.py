"""compression.awq: scales by the activations, folded into what comes before, and clips.

A scale is judged by the error it leaves in float64, and must be that of an α of the list.
"""

from __future__ import annotations

import pytest
import torch

from assignment.provided.compression import LINEARS, number_of_groups, record
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
from tests.compression.awq_models import (
    GROUPED,
    MULTI_HEAD,
    UNTIED,
    block_errors,
    dequantized,
    draw_model,
    plain,
    to_nearest,
)
from tests.grading.boundary import watch
from tests.grading.closeness import assert_close, assert_equal

MODELS = pytest.mark.parametrize("config", [GROUPED, UNTIED, MULTI_HEAD], ids=["6/2", "4/2", "3/3"])
CASES = [(4, 16), (3, 16), (4, 64), (3, 40)]  # bits, group; rows of 40: a short last group, or one
ROOM = 1.01  # a weight that lies between two steps may go to either


def draw_salient(draw, tokens, channels, loud=3):
    """Inputs of which a few channels are 15 to 30 times as large, and which go together."""
    x = draw.normal(tokens, channels) + draw.normal(tokens, 1) * draw.normal(channels)
    factors = torch.ones(channels)
    factors[draw.permutation(channels)[:loud]] = 15 + 15 * draw.uniform(loud)
    return x * factors


def draw_weights(draw, channels, outputs=(24, 7)):
    """Some of each row's weights are larger than the others, and no two rows are alike."""
    return [
        draw.normal(rows, channels) * draw.normal(rows, channels, scale=0.5).exp()
        * draw.normal(rows, 1).exp()
        for rows in outputs
    ]  # fmt: skip


def near(expected, rounding=2e-6):
    return {"naive": (expected.double() * (1 + rounding)).float()}


def assert_number(got, expected, *, room, what):
    assert_close(torch.tensor(got), torch.tensor(expected, dtype=torch.float64), what=what,
                 **near(torch.tensor(expected), (room - 1) / 4))  # fmt: skip


def assert_at_most(got, most, what):
    assert got <= most, f"{what}: expected at most {most:.4g}, got {got:.4g}"


@pytest.mark.group("search")
class TestSearch:
    def test_magnitudes(self, draw):
        for shape in ((50, 9), (3, 11, 6), (1, 7), (2, 3, 4, 5)):
            x = draw.normal(*shape) * draw.normal(*shape[:-1], 1).exp() - 0.3
            got = channel_magnitude(x)
            assert_close(got, oracles.magnitude(x), axes="channel", **near(oracles.magnitude(x)))
        got = channel_magnitude((1 + draw.uniform(700, 3)).bfloat16())
        assert got.dtype == torch.float32, f"expected float32, got {got.dtype}"

    def test_magnitudes_in_bfloat16(self, draw):
        x = (1 + draw.uniform(3, 700, 5)).bfloat16()
        assert_close(channel_magnitude(x), oracles.magnitude(x), **near(oracles.magnitude(x)))

    @pytest.mark.parametrize("alpha", [0.0, 0.05, 0.5, 0.95, 1.0])
    def test_scales(self, draw, alpha):
        for magnitudes in (
            draw.normal(30).exp(),
            torch.tensor([2.0, 8.0, 0.5]),
            torch.tensor([0.0, 1e-6, 1e-4, 3e-4, 0.7]),
            torch.zeros(4),
        ):
            expected = oracles.scale_of(magnitudes, alpha)
            got = scale_of(magnitudes, alpha)
            assert_close(got, expected, axes="channel", **near(expected, 1e-5))

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
                assert_number(got, expected, room=ROOM, what="error")

    @pytest.mark.parametrize("bits, group", CASES)
    def test_the_best_scale(self, draw, bits, group):
        for outputs in ((24,), (5, 40), (16, 3, 9)):
            weights, x = draw_weights(draw, 40, outputs), draw_salient(draw, 60, 40)
            self._assert_best(weights, x, oracles.magnitude(x), bits, group)

    def test_for_all_readers_together(self, draw):
        """The best for one is not the best for the other, and the loud one's error decides."""
        x = draw_salient(draw, 60, 40)
        for loud in (0, 1):
            weights = draw_weights(draw, 40, (12, 12))
            weights[1 - loud][:, x.abs().mean(0) < 5] *= 30  # wants no scale at all
            weights[1 - loud] *= 1e-3
            self._assert_best(weights, x, oracles.magnitude(x), 4, 16)

    def test_other_magnitudes(self, draw):
        for _ in range(3):
            x, magnitudes = draw_salient(draw, 60, 40), draw.normal(40).exp()
            weights = draw_weights(draw, 40)
            self._assert_best(weights, x, magnitudes, 3, 16, magnitudes)

    def test_the_smallest_of_equals(self, draw):
        weights, x = draw_weights(draw, 40), draw_salient(draw, 30, 40)
        for arguments in ((x, 4, 16, torch.ones(40)), (torch.zeros(8, 40), 4, 16, None)):
            scale, alpha = search_scale(weights, *arguments)
            assert_equal(alpha, 0.0, what="alpha, where all are equally good")
            assert_close(scale, torch.ones(40), axes="channel")

    @pytest.mark.parametrize("bits", [4, 3])
    def test_salient_channels_and_any_others(self, draw, bits):
        """The loud channels' own scales save most of the error. Given to channels that are not
        loud, they save nothing."""
        weights, x, channels = [draw.normal(48, 128)], draw.normal(100, 128), draw.permutation(128)
        loud, others = channels[:6], channels[6:12]
        x[:, loud] *= 30.0
        magnitudes = oracles.magnitude(x).float()
        moved = magnitudes.index_copy(0, others, magnitudes[loud])
        moved[loud] = magnitudes[others]
        nearest = oracles.error(weights[0], x, torch.ones(128), bits, 128)
        scale, _ = search_scale(weights, x, bits, 128)
        best = oracles.error(weights[0], x, scale, bits, 128)
        assert_at_most(best, nearest / 4, "error with scales (a quarter of that without)")
        scale, _ = search_scale(weights, x, bits, 128, moved)
        best = oracles.error(weights[0], x, scale, bits, 128)
        assert_at_most(0.8 * nearest, best, "0.8 of the error without scales, others' scales")

    def test_arguments_are_not_changed(self, draw):
        weights, x, scale = draw_weights(draw, 40), draw_salient(draw, 30, 40), draw.uniform(40) + 1
        for call in (
            (channel_magnitude, x),
            (scale_of, torch.tensor([0.0, 1.0, 4.0]), 0.5),
            (rounded, weights[0], 4, 16),
            (output_error, weights[0], x, scale, 4, 16),
            (search_scale, weights, x, 4, 16, scale),
        ):
            _, changed = watch(*call)
            assert changed == [], f"an argument of {call[0]} was changed, by its place"

    def _assert_best(self, weights, x, magnitudes, bits, group, *given):
        scale, alpha = search_scale(weights, x, bits, group, *given)
        assert any(abs(alpha - a) < 1e-6 for a in oracles.ALPHAS), f"alpha {alpha} is not listed"
        expected = oracles.scale_of(magnitudes, alpha)
        assert_close(scale, expected, axes="channel", what=f"scale of alpha {alpha:.2f}",
                     **near(expected, 1e-5))  # fmt: skip
        errors = oracles.errors(weights, x, magnitudes, bits, group)
        got = sum(oracles.error(weight, x, scale, bits, group) for weight in weights)
        best = oracles.ALPHAS[errors.index(min(errors))]
        what = f"error at alpha {alpha:.2f} (the best is {best:.2f})"
        assert_at_most(got, ROOM * min(errors), what)


@pytest.mark.group("folding")
class TestFolding:
    def test_into_a_norm(self, draw):
        for outputs in ((5,), (24, 7, 3)):
            norm, weights, scale = draw.normal(9), draw_weights(draw, 9, outputs), self._scale(draw)
            divided, scaled = fold(norm, weights, scale)
            self._assert_same(divided, norm.double() / scale.double(), "norm")
            self._assert_scaled(scaled, weights, scale)

    def test_into_a_linear_layer(self, draw):
        for width in (9, 4, 13):  # as wide as it is long, too
            previous, scale = draw.normal(9, width), self._scale(draw)
            weights = draw_weights(draw, 9, (6, 9))
            divided, scaled = fold(previous, weights, scale)
            rows = [row.double() / s for row, s in zip(previous, scale.tolist(), strict=True)]
            self._assert_same(divided, torch.stack(rows), "weight of the previous layer")
            self._assert_scaled(scaled, weights, scale)

    def test_heads_that_share(self, draw):
        for heads, kv_heads, width in ((6, 2, 5), (9, 3, 4), (8, 4, 3), (3, 3, 7), (5, 1, 2)):
            magnitudes, readers = draw.normal(heads * width).exp(), heads // kv_heads
            expected = torch.zeros(kv_heads * width, dtype=torch.float64)
            for head in range(heads):
                for channel in range(width):
                    share = magnitudes[head * width + channel].double() / readers
                    expected[head // readers * width + channel] += share
            what = f"{heads} query heads on {kv_heads}"
            got = over_group(magnitudes, heads, kv_heads)
            assert_close(got, expected, axes="channel", what=what, **near(expected))

    @MODELS
    def test_a_whole_model_computes_the_same(self, draw, config):
        model = draw_model(draw, config)
        state = {name: weight.clone() for name, weight in model.state_dict().items()}
        for layer in range(config.num_layers):
            for before, names in oracles.READERS.items():
                self._fold(draw, state, config, f"layers.{layer}.", before, names)
        tokens = draw.integers(0, config.vocab_size, 3, 11)
        expected = plain(config, model.state_dict())(tokens)
        assert_close(plain(config, state)(tokens), expected, axes="row place token",
                     what="logits", **near(expected, 1e-5))  # fmt: skip

    def test_arguments_are_not_changed(self, draw):
        weights, scale = draw_weights(draw, 9), self._scale(draw)
        for call in (
            (fold, draw.normal(9), weights, scale),
            (fold, draw.normal(9, 4), weights, scale),
            (over_group, draw.uniform(12), 6, 2),
        ):
            _, changed = watch(*call)
            assert changed == [], f"an argument of {call[0]} was changed, by its place"

    def _fold(self, draw, state, config, layer, before, names):
        """Random scales, for o_proj equal ones for the heads that share."""
        weights = [state[f"{layer}{name}.weight"] for name in names]
        scale = divisor = draw.normal(weights[0].shape[1]).exp()
        if before == "attention.v_proj":
            divisor = over_group(scale, config.num_heads, config.num_kv_heads)
            scale = oracles.for_queries(divisor, config)
        previous = f"{layer}{before}.weight"
        state[previous], _ = fold(state[previous], [], divisor)
        _, scaled = fold(torch.ones_like(scale), weights, scale)
        state |= {f"{layer}{name}.weight": w for name, w in zip(names, scaled, strict=True)}

    def _scale(self, draw):
        return draw.normal(9).exp()

    def _assert_scaled(self, got, weights, scale):
        assert_equal(len(got), len(weights), what="number of weights")
        for scaled, weight in zip(got, weights, strict=True):
            self._assert_same(scaled, weight.double() * scale.double(), "weight of a reader")

    def _assert_same(self, got, expected, what):
        axes = "channel" if expected.dim() == 1 else "output input"
        assert_close(got, expected, axes=axes, what=what, **near(expected))


@pytest.mark.group("clipping")
class TestClipping:
    @pytest.mark.parametrize("bits, group", [*CASES, (2, 16), (4, 1)])
    def test_the_best_ratio_of_each_group(self, draw, bits, group):
        weight, x = self._draw(draw)
        self._assert_best(weight, x, bits, group)

    def test_it_depends_on_the_inputs(self, draw):
        weight, _ = self._draw(draw)
        for tokens in (3, 100):
            self._assert_best(weight, draw_salient(draw, tokens, 40), 3, 16)

    def test_all_of_one_sign_and_zeros(self, draw):
        weight, x = self._draw(draw)
        weight[:5], weight[5:10] = weight[:5].abs() + 0.1, -weight[5:10].abs() - 0.1
        weight[10:13], weight[13:16, :16] = 0.0, 0.0
        self._assert_best(weight, x, 3, 16)

    def test_the_largest_of_equals(self, draw):
        """Where no input comes, all are equally good."""
        weight, x = self._draw(draw)
        x[:, 16:32] = 0
        got = clipped(weight, x, 3, 16)
        assert_close(got[:, 16:32], weight[:, 16:32].double(), axes="output input")
        self._assert_best(weight, x, 3, 16)

    def test_a_large_weight_that_is_hardly_read(self, draw):
        """It makes the steps of all others coarse: clipping saves more than half of the error."""
        weight, x = draw.normal(30, 64), draw.normal(80, 64)
        weight[:, 5], x[:, 5] = 8.0, 0.01 * x[:, 5]
        before = oracles.rounded(weight.double(), 3, 64) - weight
        after = rounded(clipped(weight, x, 3, 64), 3, 64).double() - weight
        before, after = ((change @ x.double().T).square().sum() for change in (before, after))
        assert_at_most(after.item(), before.item() / 2, "error (half of that without clipping)")

    def test_arguments_are_not_changed(self, draw):
        _, changed = watch(clipped, *self._draw(draw), 3, 16)
        assert changed == [], "weight (0) or x (1) was changed"

    def _draw(self, draw):
        weight = torch.cat(draw_weights(draw, 40, (20, 9)))
        weight = weight * draw.normal(*weight.shape, scale=0.6).exp()  # a few are far out
        return weight, draw_salient(draw, 60, 40)

    def _assert_best(self, weight, x, bits, group):
        got = clipped(weight, x, bits, group)
        assert_equal(list(got.shape), list(weight.shape), what="shape")
        candidates, costs = oracles.clipped(weight, x, bits, group)
        for i, columns in enumerate(oracles.groups(weight, group)):
            largest = weight[:, columns].abs().amax(1)
            off = (candidates[:, :, columns] - got[:, columns]).abs().amax(2)
            is_it = off <= 1e-5 * largest  # [10 O]
            for row in range(len(weight)):
                what = f"row {row}, columns {columns.start} to {columns.stop - 1}"
                assert is_it[:, row].any(), f"{what}: clamped by none of the ratios"
                cost = costs[is_it[:, row].nonzero()[0, 0], row, i].item()
                least = costs[:, row, i].min().item()
                assert_at_most(cost, ROOM * least + 1e-12, f"{what}: error by its ratio")


@pytest.mark.group("model")
class TestModel:
    @MODELS
    @pytest.mark.parametrize("bits, group", [(4, 16), (3, 32)])
    def test_as_near_as_can_be(self, draw, config, bits, group):
        """Each attention and each MLP: no further from the model's than AWQ's in float64."""
        model, tokens = self._draw(draw, config)
        state = dequantized(self._quantized(model, tokens, bits, group))
        got = block_errors(model, state, tokens)
        inputs = record(model, tokens).inputs
        expected = block_errors(model, oracles.awq(model, inputs, bits, group), tokens)
        nearest = block_errors(model, to_nearest(model, bits, group), tokens)
        gains = []
        for block, error in got.items():
            gains.append(nearest[block] / error)
            assert_at_most(error, 1.05 * expected[block], f"error of {block}")
        gain = torch.tensor(gains).log().mean().exp().item()
        assert_at_most(1.5, gain, "gain over rounding to the nearest, mean of the blocks")

    @MODELS
    def test_norms_have_the_scales(self, draw, config):
        model, tokens = self._draw(draw, config)
        state, inputs = self._quantized(model, tokens, 4, 16).state_dict(), record(model, tokens)
        for layer in range(config.num_layers):
            for norm in ("attention_norm", "mlp_norm"):
                name = f"layers.{layer}.{norm}.weight"
                scale = model.state_dict()[name].double() / state[name].double()
                choice = oracles.choice(model, layer, norm, inputs.inputs, 4, 16)
                self._assert_scale(scale, choice, f"weight of {name} / that of the result")

    @MODELS
    def test_queries_and_keys_are_not_clipped(self, draw, config):
        """Each weight, times the scale that was folded into the norm, is within half a step."""
        model, tokens = self._draw(draw, config)
        result = self._quantized(model, tokens, 3, 16)
        state = dequantized(result)
        for layer in range(config.num_layers):
            norm = f"layers.{layer}.attention_norm.weight"
            scale = model.state_dict()[norm].double() / state[norm]
            for name in ("q_proj", "k_proj"):
                name = f"layers.{layer}.attention.{name}.weight"
                weight = model.state_dict()[name].double() * scale
                off = (state[name] - weight).abs() / oracles.step_of(weight, 3, 16)
                assert_at_most(off.max().item(), 0.501, f"{name}: steps from the scaled weight")

    @pytest.mark.parametrize("bits, group", [(4, 16), (3, 64)])
    def test_codes_and_scales_alone(self, draw, bits, group):
        """No weight of a linear layer is left in high precision; all others are as they were."""
        model, tokens = self._draw(draw, UNTIED)
        state, before = self._quantized(model, tokens, bits, group).state_dict(), model.state_dict()
        for layer in range(UNTIED.num_layers):
            for name in LINEARS:
                name = f"layers.{layer}.{name}"
                rows, columns = before[f"{name}.weight"].shape
                groups = number_of_groups(columns, group)
                words = -(-columns // 8) + -(-groups // 8) + groups  # codes, zero points, scales
                held = [value for key, value in state.items() if key.startswith(f"{name}.")]
                size = sum(value.numel() * value.element_size() for value in held)
                assert_at_most(size, 4 * rows * words, f"bytes of {name}")
                assert_at_most(4 * rows * columns // 8, size, f"bytes of codes of {name}")
        for name in ("embedding.weight", "norm.weight", "head.weight"):
            assert_equal(state[name], before[name], what=name)

    @MODELS
    def test_computes_with_what_it_keeps(self, draw, config):
        model, tokens = self._draw(draw, config)
        result = self._quantized(model, tokens, 4, 16)
        assert_equal(result.config, config, what="config")
        others = draw.integers(0, config.vocab_size, 2, 9)
        expected = plain(config, dequantized(result))(others)
        assert_close(result(others).detach(), expected, axes="row place token", what="logits",
                     **near(expected, 1e-5))  # fmt: skip

    def test_the_model_itself_stays(self, draw):
        """Its weights; and the result keeps none of them."""
        model, tokens = self._draw(draw, GROUPED)
        before = model.state_dict()
        theirs = self._there(model)
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
        theirs.load_state_dict(model.state_dict())
        return theirs

    def _quantized(self, model, tokens, bits, group):
        return awq(self._there(model), tokens, bits, group)

    def _assert_scale(self, scale, choice, what):
        """That of an α of the list, and hardly worse than the best. The search may have seen
        weights that another scale was folded into."""
        offs = [
            (scale / oracles.scale_of(choice.magnitudes, alpha) - 1).abs().max().item()
            for alpha in oracles.ALPHAS
        ]
        found = offs.index(min(offs))
        assert_at_most(min(offs), 1e-3, f"{what}: distance to the nearest scale_of")
        assert_at_most(choice.errors[found], 1.05 * min(choice.errors), f"{what}: error")
