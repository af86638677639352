"""assignment/provided/compression: recordings, models with other linear layers, perplexity."""

from __future__ import annotations

import copy
import math
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import nn

from assignment.provided.compression import (
    LINEARS,
    Importance,
    linears,
    nats,
    number_of_groups,
    record,
    with_linears,
)
from assignment.provided.models import Llama, LlamaConfig
from tests.compression import oracles_pruning as oracles
from tests.grading.closeness import assert_close
from tests.grading.draw import Draw

CONFIG = LlamaConfig(31, 3, d_model=22, num_heads=9, num_kv_heads=3, head_dim=4, d_ff=29)
UNTIED = LlamaConfig(
    23, 2, d_model=20, num_heads=6, num_kv_heads=2, head_dim=8, d_ff=27, tie_embeddings=False
)
BOTH = pytest.mark.parametrize("config", [CONFIG, UNTIED], ids=["tied", "untied"])


@pytest.fixture
def draw():
    return Draw(7)


def new_model(draw, config=CONFIG):
    weights = oracles.draw_weights(draw, config)
    model = Llama(config, seed=None)
    model.load_state_dict(weights)
    return model, weights


def assert_near(got, expected):
    assert_close(got, expected, naive=(expected * (1 + 1e-5)).float())


def draw_tokens(draw, config=CONFIG, rows=3, length=6):
    return draw.integers(0, config.vocab_size, rows, length)


# --- the linear layers ---------------------------------------------------------------------------


def test_linears_are_all_matrices_of_the_layers_by_name():
    model = Llama(CONFIG)
    found = linears(model)
    matrices = [
        name.removesuffix(".weight")
        for name, weight in model.named_parameters()
        if name.startswith("layers.") and weight.dim() == 2
    ]
    assert list(found) == matrices and len(found) == len(LINEARS) * CONFIG.num_layers
    assert all(found[name] is model.get_submodule(name) for name in found)


@BOTH
def test_a_copy_with_nothing_replaced(draw, config):
    model, weights = new_model(draw, config)
    twin = with_linears(model, {})
    tokens = draw_tokens(draw, config)
    assert torch.equal(twin(tokens), model(tokens)) and twin.config == config
    places = {weight.data_ptr() for weight in model.parameters()}
    assert not places & {weight.data_ptr() for weight in twin.parameters()}
    with torch.no_grad():
        for weight in twin.parameters():
            weight.zero_()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, weights[name])


class Scaled(nn.Module):
    """A linear layer that holds no parameter, and is no nn.Linear."""

    def __init__(self, weight, scale):
        super().__init__()
        self.register_buffer("weight", weight * scale)

    def forward(self, x):
        return x @ self.weight.T


@BOTH
def test_what_is_replaced_computes_instead(draw, config):
    model, weights = new_model(draw, config)
    names = ["layers.1.attention.v_proj", "layers.0.mlp.down_proj", "layers.1.attention.o_proj"]
    scales = dict(zip(names, (0.5, -2.0, 3.0), strict=True))
    replaced = {name: Scaled(weights[f"{name}.weight"], scale) for name, scale in scales.items()}
    other = with_linears(model, replaced)
    assert all(other.get_submodule(name) is layer for name, layer in replaced.items())
    changed = {
        name: weight * scales.get(name.removesuffix(".weight"), 1.0)
        for name, weight in weights.items()
    }
    tokens = draw_tokens(draw, config)
    for which, expected in ((other, changed), (model, weights)):
        assert_near(which(tokens), oracles.run(config, expected, tokens).logits)


def test_what_is_replaced_is_not_copied_first(draw):
    class Heavy(Scaled):
        def __deepcopy__(self, memo):
            raise AssertionError("copied")

    model, _ = new_model(draw)
    heavy = Heavy(torch.zeros(29, 22), 1.0)
    model = with_linears(model, {"layers.2.mlp.up_proj": heavy})
    with_linears(model, {"layers.2.mlp.up_proj": Scaled(torch.zeros(29, 22), 1.0)})
    with pytest.raises(AssertionError, match="copied"):
        copy.deepcopy(model)


@pytest.mark.parametrize(
    "name", ["embedding", "layers.0.attention", "layers.3.mlp.up_proj", "layers.0.mlp", ""]
)
def test_names_that_are_no_linear_layer(name):
    with pytest.raises(ValueError, match=f"no linear layer '{name}'"):
        with_linears(Llama(CONFIG), {name: nn.Identity()})


# --- recordings ----------------------------------------------------------------------------------


@BOTH
def test_a_recording_holds_what_the_formulas_give(draw, config):
    model, weights = new_model(draw, config)
    tokens = draw_tokens(draw, config)
    got, expected = record(model, tokens), oracles.run(config, weights, tokens)
    assert list(got.inputs) and set(got.inputs) == set(linears(model))
    assert len(got.states) == config.num_layers + 1
    for state, right in zip(got.states, expected.states, strict=True):
        assert_near(state, right)
    assert_near(got.logits, expected.logits)
    for index in range(config.num_layers):
        given = {part: got.inputs[f"layers.{index}.{part}"] for part in LINEARS}
        for part in ("q_proj", "k_proj", "v_proj"):
            assert_near(given[f"attention.{part}"], expected.normed[2 * index])
        for part in ("gate_proj", "up_proj"):
            assert_near(given[f"mlp.{part}"], expected.normed[2 * index + 1])
        assert_near(given["attention.o_proj"], expected.read[index].flatten(2))
        assert_near(given["mlp.down_proj"], expected.neurons[index])
        # One tensor: who keeps a recording keeps it once.
        assert given["attention.q_proj"] is given["attention.v_proj"]
        assert given["mlp.gate_proj"] is given["mlp.up_proj"]


def test_a_recording_needs_no_gradients_and_leaves_no_hook(draw):
    model, weights = new_model(draw)
    assert model.embedding.weight.requires_grad
    tokens = draw_tokens(draw)
    first, second = record(model, tokens), record(model, draw_tokens(draw, rows=1))
    kept = [*first.inputs.values(), *first.states, first.logits]
    assert not any(tensor.requires_grad for tensor in kept)
    assert torch.equal(first.logits, record(model, tokens).logits)
    assert len(second.states) == len(first.states) and second.logits.shape[0] == 1
    assert_no_hooks(model)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, weights[name])


def test_no_hook_is_left_after_a_failure(draw):
    model, _ = new_model(draw)
    with pytest.raises(IndexError):
        record(model, torch.tensor([[CONFIG.vocab_size]]))
    assert_no_hooks(model)


def assert_no_hooks(model):
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks


def test_replaced_layers_are_recorded_too(draw):
    model, weights = new_model(draw)
    name = "layers.1.mlp.gate_proj"
    other = with_linears(model, {name: Scaled(weights[f"{name}.weight"], 1.0)})
    tokens = draw_tokens(draw)
    got, expected = record(other, tokens), record(model, tokens)
    assert torch.equal(got.inputs[name], expected.inputs[name])
    assert torch.allclose(got.logits, expected.logits, atol=1e-5)


# --- perplexity ----------------------------------------------------------------------------------


class Fixed(nn.Module):
    """The same logits [B T V] for all tokens."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, tokens):
        return self.logits * 1


def test_nats_of_one_who_knows_nothing():
    tokens = torch.tensor([[4, 0, 3], [1, 1, 2]])
    assert nats(Fixed(torch.full((2, 3, 5), 7.0)), tokens) == pytest.approx(math.log(5))


def test_nats_by_the_formula(draw):
    logits, tokens = draw.normal(3, 6, 11, scale=3.0), draw.integers(0, 11, 3, 6)
    assert nats(Fixed(logits), tokens) == pytest.approx(oracles.nats(logits.double(), tokens))
    model, weights = new_model(draw)
    tokens = draw_tokens(draw)
    expected = oracles.nats(oracles.run(CONFIG, weights, tokens).logits, tokens)
    assert nats(model, tokens) == pytest.approx(expected, rel=1e-5)


def test_padding_counts_not(draw):
    logits, tokens = draw.normal(2, 6, 11), draw.integers(0, 11, 2, 6)
    real = torch.arange(6) < torch.tensor([[6], [3]])
    both = [oracles.nats(logits[:1].double(), tokens[:1])] * 5
    both += [oracles.nats(logits[1:, :3].double(), tokens[1:, :3])] * 2
    expected = sum(both) / 7
    assert nats(Fixed(logits), tokens, real) == pytest.approx(expected)
    tokens[~real] = 0
    logits[~real] = 1e4
    assert nats(Fixed(logits), tokens, real) == pytest.approx(expected)


def test_nats_of_bfloat16_logits_are_not_rounded_to_bfloat16(draw):
    logits, tokens = draw.normal(4, 40, 11).bfloat16(), draw.integers(0, 11, 4, 40)
    expected = oracles.nats(logits.double(), tokens)
    assert nats(Fixed(logits), tokens) == pytest.approx(expected, rel=1e-6)
    assert nats(Fixed(logits.double()), tokens) == pytest.approx(expected, rel=1e-12)


def test_nothing_to_predict():
    with pytest.raises(ValueError, match="no token to predict"):
        nats(Fixed(torch.zeros(2, 1, 5)), torch.tensor([[1], [2]]))


# --- what is passed around -----------------------------------------------------------------------


def test_importance_is_not_to_be_changed():
    parts = Importance(*(torch.zeros(2) for _ in range(4)))
    with pytest.raises(FrozenInstanceError):
        parts.layers = torch.ones(2)


@pytest.mark.parametrize(
    ("columns", "group", "groups"), [(576, 128, 5), (512, 128, 4), (1, 64, 1), (65, 64, 2)]
)
def test_a_short_last_group_counts(columns, group, groups):
    assert number_of_groups(columns, group) == groups
