"""Models to prune, and what a pruned one is held against."""

from __future__ import annotations

import torch

from assignment.provided.compression import Importance
from assignment.provided.models import LlamaConfig
from tests.compression import oracles_pruning as oracles
from tests.grading.closeness import assert_close, assert_equal

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here

# No two sizes are equal, nor is a head as wide as its group is large.
TIED = LlamaConfig(31, 4, d_model=22, num_heads=9, num_kv_heads=3, head_dim=4, d_ff=29)
UNTIED = LlamaConfig(
    23, 3, d_model=20, num_heads=6, num_kv_heads=2, head_dim=8, d_ff=27,
    rope_theta=500.0, norm_eps=1e-2, tie_embeddings=False,
)  # fmt: skip
MULTI_HEAD = LlamaConfig(19, 2, d_model=18, num_heads=5, num_kv_heads=5, head_dim=6, d_ff=21)


def draw_importance(draw, config, levels=None):
    """Random, or integers from 0 to levels − 1, so that many are equal."""
    shapes = (
        (config.num_layers, config.num_kv_heads),
        (config.num_layers, config.d_ff),
        (config.d_model,),
        (config.num_layers,),
    )
    if levels:
        return Importance(*(draw.integers(0, levels, *shape).float() for shape in shapes))
    return Importance(*(draw.uniform(*shape) for shape in shapes))


def state_of(model):
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def draw_tokens(draw, config, rows=3, length=7):
    return draw.integers(0, config.vocab_size, rows, length)


def assert_near(got, expected, *, axes="", what="", near=2e-6):
    """Equal up to float32's rounding of a few steps; a whole model is a few more."""
    naive = (expected.double() * (1 + near)).float()
    assert_close(got, expected, naive=naive, axes=axes, what=what)


def assert_weights(model, expected, note=""):
    """All weights, by name, bit by bit and in their dtypes; `note` says when or which."""
    state = state_of(model)
    assert_equal(sorted(state), sorted(expected), what=f"names of the weights{note}")
    for name, weight in expected.items():
        assert_equal(state[name], weight, axes="row column" if weight.dim() == 2 else "channel",
                     what=f"{name}{note}")  # fmt: skip
        assert_equal(state[name].dtype, weight.dtype, what=f"dtype of {name}{note}")


def assert_model(draw, got, config, weights, note=""):
    """`got` has these sizes and weights, and computes what such a model does."""
    assert_equal(got.config, config, what="config")
    assert_weights(got, weights, note)
    tokens = draw_tokens(draw, config)
    if got.dtype == torch.bfloat16:  # its logits are rounded at each step
        return
    logits = got(tokens).detach()
    assert_near(logits, oracles.run(config, weights, tokens).logits, near=1e-5, what="logits")


def assert_apart(draw, model, weights, result):
    """`model` still has `weights`, and neither it nor `result` changes with the other."""
    assert_weights(model, weights, " of the old model, which was to stay as it was")
    kept = state_of(result)
    model.load_state_dict({name: weight + 1 for name, weight in weights.items()})
    assert_weights(result, kept, " of the new model, after the old one was changed")
    spoilt = state_of(model)
    result.load_state_dict({name: weight - 1 for name, weight in kept.items()})
    assert_weights(model, spoilt, " of the old model, after the new one was changed")
