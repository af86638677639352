"""compression.pruning: what matters, what is left without the rest, and that it is a model."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from assignment.provided.compression import nats, record
from assignment.provided.lab.counter import CostCounter
from assignment.provided.models import Llama as GradersLlama
from assignment.provided.models import LlamaConfig
from submission.compression.pruning import (
    block_influence,
    head_importance,
    importance,
    loss_without,
    neuron_importance,
    prune_depth,
    prune_width,
    search_configs,
)
from submission.provided.models import Llama
from tests.compression import oracles_pruning as oracles
from tests.compression.pruned_models import (
    MULTI_HEAD,
    TIED,
    UNTIED,
    assert_apart,
    assert_model,
    assert_near,
    assert_weights,
    draw_importance,
    draw_tokens,
)
from tests.grading.boundary import observe, watch
from tests.grading.closeness import assert_equal
from tests.grading.refusal import assert_value_error

CONFIGS = pytest.mark.parametrize("config", [TIED, UNTIED, MULTI_HEAD], ids=["9/3", "6/2", "5/5"])
DTYPES = [torch.float64, torch.bfloat16]


def new_model(config, weights, dtype=torch.float32):
    model = Llama(config, seed=None).to(dtype)
    model.load_state_dict(weights)
    return model


@pytest.mark.group("measures")
class TestMeasures:
    # texts, tokens, query heads, KV heads, width of a head
    SHAPES = ((3, 5, 6, 2, 4), (2, 7, 9, 3, 5), (4, 3, 4, 4, 3), (5, 1, 5, 1, 2), (1, 6, 8, 4, 3))

    def test_heads(self, draw):
        for texts, length, heads, kv_heads, width in self.SHAPES:
            outputs = self._uneven(draw, texts, length, heads, width)
            expected = oracles.head_importance(outputs, kv_heads)
            what = f"{heads} query heads on {kv_heads}, {texts} texts"
            assert_near(head_importance(outputs, kv_heads), expected, axes="head", what=what)

    def test_neurons(self, draw):
        for texts, length, columns in ((3, 5, 11), (2, 8, 6), (6, 1, 5), (1, 7, 3)):
            x = self._uneven(draw, texts, length, columns, 1)[..., 0]
            expected = oracles.neuron_importance(x)
            what = f"{texts} texts of {length} tokens"
            assert_near(neuron_importance(x), expected, axes="column", what=what)

    def test_what_is_never_active_has_none(self, draw):
        outputs, x = draw.normal(3, 4, 6, 5), draw.normal(3, 4, 6)
        outputs[:, :, 3:], x[:, :, 2] = 0, 0
        assert_equal(head_importance(outputs, 2)[1].item(), 0.0)
        assert_equal(neuron_importance(x)[2].item(), 0.0)

    def test_influence(self, draw):
        for texts, length, width in ((3, 5, 8), (2, 1, 6), (1, 9, 5)):
            before = self._uneven(draw, texts, length, width, 1)[..., 0]
            after = before + self._uneven(draw, texts, length, width, 1)[..., 0]
            self._assert_influence(before, after)

    def test_a_layer_that_stretches_or_turns_round(self, draw):
        before = draw.normal(2, 5, 7)
        self._assert_influence(before, before)
        self._assert_influence(before, 3.0 * before)
        self._assert_influence(before, -0.5 * before)

    def test_in_bfloat16(self, draw):
        """Also where the parts are almost equal, and where a layer turns almost nothing."""
        outputs = (1 + draw.uniform(3, 40, 6, 4) / 8).bfloat16()
        assert_near(head_importance(outputs, 2), oracles.head_importance(outputs, 2), axes="head")
        x = outputs.flatten(2)
        assert_near(neuron_importance(x), oracles.neuron_importance(x), axes="column")
        after = (x.float() * (1 + draw.normal(*x.shape, scale=0.02))).bfloat16()
        self._assert_influence(x, after)

    def test_arguments_are_not_changed(self, draw):
        x = draw.normal(2, 3, 6, 4)
        for what, call in (
            ("outputs (0)", (head_importance, x, 2)),
            ("x (0)", (neuron_importance, x[..., 0])),
            ("before (0) or after (1)", (block_influence, x[..., 0], x[..., 1])),
        ):
            _, changed = watch(*call)
            assert changed == [], f"{what} was changed"

    def _assert_influence(self, before, after):
        """Up to the rounding of the cosine, which is near 1."""
        got, expected = block_influence(before, after), oracles.block_influence(before, after)
        cosine = torch.tensor(1 - got, dtype=torch.float64)
        assert_near(cosine.float(), torch.tensor(1 - expected, dtype=torch.float64), what="cosine")

    def _uneven(self, draw, *shape):
        """Texts, tokens and columns of different sizes."""
        by = [
            draw.normal(*(n if axis == i else 1 for i, n in enumerate(shape[:3])), 1).exp()
            for axis in range(3)
        ]
        return draw.normal(*shape) * by[0] * by[1] * by[2]


@pytest.mark.group("importance")
class TestImportance:
    @CONFIGS
    def test_of_all_parts(self, draw, config):
        weights, tokens = oracles.draw_weights(draw, config), draw_tokens(draw, config)
        got = importance(new_model(config, weights), tokens)
        self._assert_importance(got, oracles.importance(config, weights, tokens))

    def test_again_for_other_texts(self, draw):
        """Nothing is left of one calibration when the next comes, and the model stays as it was."""
        weights = oracles.draw_weights(draw, UNTIED)
        model = new_model(UNTIED, weights)
        for rows, length in ((2, 9), (4, 3)):
            tokens = draw_tokens(draw, UNTIED, rows, length)
            got, changed = watch(importance, model, tokens)
            assert changed == [], "tokens (1) was changed"
            self._assert_importance(got, oracles.importance(UNTIED, weights, tokens))
        assert_weights(model, weights)

    def test_again_for_another_model(self, draw):
        """The same texts, other weights."""
        tokens = draw_tokens(draw, UNTIED)
        for _ in range(2):
            weights = oracles.draw_weights(draw, UNTIED)
            got = importance(new_model(UNTIED, weights), tokens)
            self._assert_importance(got, oracles.importance(UNTIED, weights, tokens))

    def test_of_a_bfloat16_model(self, draw):
        """Its importance is float32: bfloat16 makes unequal parts equal."""
        weights = oracles.draw_weights(draw, UNTIED, torch.bfloat16)
        got = importance(new_model(UNTIED, weights, torch.bfloat16), draw_tokens(draw, UNTIED))
        for part in fields(got):
            dtype = getattr(got, part.name).dtype
            fine = torch.finfo(dtype).eps <= torch.finfo(torch.float32).eps
            assert fine, f"{part.name}: expected float32, got {dtype}"

    def _assert_importance(self, got, expected):
        axes = {"kv_heads": "layer head", "neurons": "layer neuron"}
        axes |= {"channels": "channel", "layers": "layer"}
        for part in fields(expected):
            values = getattr(got, part.name), getattr(expected, part.name)
            assert_near(*values, near=1e-5, axes=axes[part.name], what=part.name)


@pytest.mark.group("depth")
class TestDepth:
    @CONFIGS
    def test_the_others_move_up(self, draw, config):
        weights = oracles.draw_weights(draw, config)
        model, last = new_model(config, weights), config.num_layers - 1
        for layers in ([0], [last], [last, 0] if last > 1 else [1], (last - 1,)):
            expected = oracles.without_layers(config, weights, layers)
            assert_model(draw, prune_depth(model, layers), *expected)

    def test_of_four_layers_one_is_left(self, draw):
        weights = oracles.draw_weights(draw, TIED)
        model = new_model(TIED, weights)
        for kept in range(4):
            layers = [layer for layer in (2, 0, 3, 1) if layer != kept]
            expected = oracles.without_layers(TIED, weights, layers)
            assert_model(draw, prune_depth(model, layers), *expected)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_other_dtypes(self, draw, dtype):
        weights = oracles.draw_weights(draw, UNTIED, dtype)
        got = prune_depth(new_model(UNTIED, weights, dtype), [1])
        assert_model(draw, got, *oracles.without_layers(UNTIED, weights, [1]))

    def test_the_model_stays_as_it_was(self, draw):
        for layers in ([2, 0], []):
            weights = oracles.draw_weights(draw, TIED)
            model = new_model(TIED, weights)
            got, changed = watch(prune_depth, model, layers)
            assert changed == [], "layers (1) was changed"
            assert_equal(model.config, TIED, what="config of the model that was given")
            assert_model(draw, got, *oracles.without_layers(TIED, weights, layers))
            assert_apart(draw, model, weights, got)

    def test_layers_that_cannot_go(self, draw):
        model = new_model(UNTIED, oracles.draw_weights(draw, UNTIED))
        for layers in ([-1], [3], [0, 7], [1, 1], [0, 2, 0], [2, 0, 1]):
            assert_value_error(f"layers {layers} of 0 … 2", prune_depth, model, layers)

    @CONFIGS
    def test_loss_without_each(self, draw, config):
        weights, tokens = oracles.draw_weights(draw, config), draw_tokens(draw, config)
        model = new_model(config, weights)
        _assert_loss_without(loss_without(model, tokens), config, weights, tokens)
        assert_weights(model, weights)


def _assert_loss_without(got, config, weights, tokens):
    """The loss is added, so that its rounding counts and not that of a small difference."""
    assert_equal(list(got.shape), [config.num_layers], what="shape")
    whole = oracles.nats(oracles.run(config, weights, tokens).logits, tokens)
    expected = oracles.losses_without(config, weights, tokens)
    what = f"loss of the whole model, {whole:.4g}, and its rise"
    assert_near(got.float() + whole, expected, near=1e-5, axes="layer", what=what)


# KV heads, neurons, channels: all smaller, one smaller at a time, all kept, hardly any.
SIZES = {
    "9/3": [(2, 17, 13), (1, 29, 22), (3, 10, 22), (3, 29, 7), (3, 29, 22), (1, 1, 3)],
    "6/2": [(1, 13, 14), (1, 27, 20), (2, 11, 20), (2, 27, 9), (2, 27, 20), (1, 1, 3)],
    "5/5": [(3, 12, 11), (2, 21, 18), (5, 20, 18), (5, 21, 17), (5, 21, 18), (1, 1, 3)],
}


@pytest.mark.group("width")
class TestWidth:
    @pytest.mark.parametrize("ratio", SIZES)
    def test_equals_slicing_by_hand(self, draw, ratio):
        config = {"9/3": TIED, "6/2": UNTIED, "5/5": MULTI_HEAD}[ratio]
        weights = oracles.draw_weights(draw, config)
        model = new_model(config, weights)
        for sizes in SIZES[ratio]:
            parts = draw_importance(draw, config)
            got = prune_width(model, parts, *sizes)
            assert_model(draw, got, *oracles.narrowed(config, weights, parts, sizes))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_other_dtypes(self, draw, dtype):
        weights, sizes = oracles.draw_weights(draw, TIED, dtype), (2, 12, 15)
        parts = draw_importance(draw, TIED)
        got = prune_width(new_model(TIED, weights, dtype), parts, *sizes)
        assert_model(draw, got, *oracles.narrowed(TIED, weights, parts, sizes))

    @pytest.mark.parametrize("levels", [1, 2, 3])
    def test_of_equal_parts_the_first(self, draw, levels):
        """Some with no importance at all, which are kept all the same if there is room."""
        weights = oracles.draw_weights(draw, TIED)
        model = new_model(TIED, weights)
        for sizes in ((2, 14, 11), (2, 25, 20), (1, 3, 2)):
            parts = draw_importance(draw, TIED, levels)
            got = prune_width(model, parts, *sizes)
            expected = oracles.narrowed(TIED, weights, parts, sizes)
            assert_model(draw, got, *expected, ", some parts being equally important")

    def test_the_model_stays_as_it_was(self, draw):
        for sizes in ((2, 20, 16), (3, 29, 22)):
            weights, parts = oracles.draw_weights(draw, TIED), draw_importance(draw, TIED)
            model = new_model(TIED, weights)
            got, changed = watch(prune_width, model, parts, *sizes)
            assert changed == [], "importance (1) was changed"
            assert_equal(model.config, TIED, what="config of the model that was given")
            assert_apart(draw, model, weights, got)

    def test_by_the_importance_that_was_measured(self, draw):
        weights, tokens = oracles.draw_weights(draw, UNTIED), draw_tokens(draw, UNTIED)
        model, sizes = new_model(UNTIED, weights), (1, 15, 12)
        parts = importance(model, tokens)
        got = prune_width(model, parts, *sizes)
        assert_model(draw, got, *oracles.narrowed(UNTIED, weights, parts, sizes))

    def test_sizes_that_cannot_be(self, draw):
        model = new_model(UNTIED, oracles.draw_weights(draw, UNTIED))
        parts = draw_importance(draw, UNTIED)
        most = (2, 27, 20)
        for place, name in enumerate(("num_kv_heads", "d_ff", "d_model")):
            for size in (0, -1, most[place] + 1):
                sizes = [size if i == place else n for i, n in enumerate(most)]
                what = f"{name} = {size} of {most[place]}"
                assert_value_error(what, prune_width, model, parts, *sizes)


LISTS = {  # not in order; several pairs are equally large: (2 heads, 20) and (1 head, 36)
    "num_layers": [3, 1, 2],
    "num_kv_heads": [2, 1, 3],
    "d_ff": [20, 52, 36, 4],
    "d_model": [16, 12],
}


@pytest.mark.group("search")
class TestSearch:
    @pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
    def test_all_that_fit(self, tie):
        config = self._config(tie)
        all_of_them = oracles.configs(config, LISTS)
        sizes = sorted(size for _, size in all_of_them)
        for place in (0.2, 0.5, 0.9):
            for tolerance in (0.0, 0.25, 0.5, 1.0):
                budget = sizes[int(place * len(sizes))]
                self._assert_found(config, all_of_them, budget, tolerance)

    def test_five_percent_if_not_told(self):
        config = self._config(True)
        all_of_them = oracles.configs(config, LISTS)
        for place in (40, 48):  # the nearest sizes are 3.9, 4.9 and 17 % smaller; 6.2 and 9.8 %
            budget = sorted(size for _, size in all_of_them)[place]
            got = search_configs(config, budget, **LISTS)
            expected = [one for one, size in all_of_them if 0.95 * budget <= size <= budget]
            what = f"configs for a budget of {budget}"
            assert_equal(sorted(map(str, got)), sorted(map(str, expected)), what=what)

    @pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
    def test_one_parameter_over_or_under(self, tie):
        """The budget is exact at both ends: each norm and each table counts."""
        config = self._config(tie)
        one = {"num_layers": [3], "num_kv_heads": [1], "d_ff": [52], "d_model": [12]}
        ((candidate, size),) = oracles.configs(config, one)
        for budget, tolerance in (
            (size - 1, 1.0), (size, 0.0), (size + 1, 0.0),
            (4 * size, 0.75), (4 * size + 1, 0.75), (4 * size + 4, 0.75),
        ):  # fmt: skip
            fits = (1 - tolerance) * budget <= size <= budget
            got = search_configs(config, budget, **one, tolerance=tolerance)
            what = f"a model of {size} parameters, budget {budget}, tolerance {tolerance}"
            assert_equal(got, [candidate] if fits else [], what=what)

    def test_order_of_equally_large_ones(self):
        config = self._config(True)
        for lists in (
            {"num_layers": [2], "num_kv_heads": [1, 2], "d_ff": [20, 36], "d_model": [12]},
            {"num_layers": [2], "num_kv_heads": [2, 1], "d_ff": [36, 20], "d_model": [12]},
            {"num_layers": [2], "num_kv_heads": [3, 1, 2], "d_ff": [4, 20, 36], "d_model": [12]},
        ):
            all_of_them = oracles.configs(config, lists)
            budget = max(size for _, size in all_of_them)
            self._assert_found(config, all_of_them, budget, 1.0, lists)

    def test_none_fits(self):
        assert_equal(search_configs(self._config(True), 100, **LISTS, tolerance=0.5), [])

    def _config(self, tie):
        """3 query heads to a KV head of width 6; other values than the defaults elsewhere."""
        config = LlamaConfig(41, 5, 30, num_heads=12, num_kv_heads=4, head_dim=6, d_ff=60)
        return replace(config, tie_embeddings=tie, rope_theta=777.0, norm_eps=1e-3)

    def _assert_found(self, config, all_of_them, budget, tolerance, lists=None):
        fitting = [(c, n) for c, n in all_of_them if (1 - tolerance) * budget <= n <= budget]
        expected = [candidate for candidate, _ in sorted(fitting, key=lambda pair: -pair[1])]
        got = search_configs(config, budget, **(lists or LISTS), tolerance=tolerance)
        what = f"configs for a budget of {budget}, tolerance {tolerance}"
        assert_equal(len(got), len(expected), what=f"number of {what}")
        for place, (found, right) in enumerate(zip(got, expected, strict=True)):
            assert_equal(found, right, what=f"{what}: number {place}")


# --- cost ----------------------------------------------------------------------------------------

CALIBRATED = LlamaConfig(97, 4, d_model=64, num_heads=6, num_kv_heads=2, head_dim=16, d_ff=176)


@pytest.mark.cost("flops")
def test_one_pass_measures_all_parts(draw, budget):
    """The ideal: one forward pass over the texts, together or one by one."""
    weights, tokens = oracles.draw_weights(draw, CALIBRATED), draw_tokens(draw, CALIBRATED, 4, 24)
    seen = observe(importance, new_model(CALIBRATED, weights), tokens)
    expected = oracles.importance(CALIBRATED, weights, tokens)
    assert_near(seen.value.neurons, expected.neurons, near=1e-5, axes="layer neuron")
    with CostCounter() as counter:
        record(GradersLlama(CALIBRATED), tokens)
    ideal = counter.cost.flops
    budget(max(seen.cost.flops, ideal), ideal, unit="FLOPs")


@pytest.mark.cost("flops")
def test_one_pass_for_each_layer_left_out(draw, budget):
    """The ideal: the whole model once, and once a layer without it. Less earns no more."""
    weights, tokens = oracles.draw_weights(draw, CALIBRATED), draw_tokens(draw, CALIBRATED, 4, 24)
    seen = observe(loss_without, new_model(CALIBRATED, weights), tokens)
    _assert_loss_without(seen.value, CALIBRATED, weights, tokens)
    smaller = replace(CALIBRATED, num_layers=CALIBRATED.num_layers - 1)
    with CostCounter() as counter:
        nats(GradersLlama(CALIBRATED), tokens)
        for _ in range(CALIBRATED.num_layers):
            nats(GradersLlama(smaller), tokens)
    ideal = counter.cost.flops
    budget(max(seen.cost.flops, ideal), ideal, unit="FLOPs")
