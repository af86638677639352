"""Models with salient channels, and how far a quantised one is from them, block by block."""

from __future__ import annotations

import torch
from torch import Tensor

from assignment.provided.compression import LINEARS, record
from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.llama import attend_causally
from assignment.provided.models.rotary import cos_sin_at
from tests.compression import oracles_awq as oracles

# No width is a multiple of the group, so that every row ends in a short one.
GROUPED = LlamaConfig(37, 2, d_model=40, num_heads=6, num_kv_heads=2, head_dim=10, d_ff=56)
UNTIED = LlamaConfig(
    29, 2, d_model=44, num_heads=4, num_kv_heads=2, head_dim=14, d_ff=52, tie_embeddings=False,
)  # fmt: skip
MULTI_HEAD = LlamaConfig(31, 2, d_model=36, num_heads=3, num_kv_heads=3, head_dim=12, d_ff=44)


def draw_model(draw, config: LlamaConfig) -> Llama:
    """One in whose every linear layer a few inputs are far larger than the others."""
    model = Llama(config, seed=draw.seed()).requires_grad_(False)
    for layer in model.layers:
        for weight in (layer.attention_norm.weight, layer.mlp_norm.weight):
            weight.mul_(_uneven(draw, config.d_model))
        layer.attention.v_proj.weight.mul_(
            _uneven(draw, config.num_kv_heads * config.head_dim)[:, None]
        )
        layer.mlp.up_proj.weight.mul_(_uneven(draw, config.d_ff)[:, None])
    return model


def _uneven(draw, channels: int) -> Tensor:
    """Factors near 1, and a tenth of them 12 to 25."""
    factors = 0.7 + 0.6 * draw.uniform(channels)
    loud = draw.permutation(channels)[: channels // 10]
    factors[loud] = 12 + 13 * draw.uniform(len(loud))
    return factors


def plain(config: LlamaConfig, state: dict[str, Tensor]) -> Llama:
    """A model of plain weights, in float64."""
    model = Llama(config, seed=None).double().requires_grad_(False)
    model.load_state_dict(state)
    return model


def dequantized(result) -> dict[str, Tensor]:
    """The state dict of plain weights that stand for those of a model of quantised layers."""
    state = {}
    for name, value in result.state_dict().items():
        layer, _, buffer = name.rpartition(".")
        if not layer.endswith(LINEARS):
            state[name] = value.double()
        elif buffer == "codes":
            state[f"{layer}.weight"] = result.get_submodule(layer).dequantized().double()
    return state


def to_nearest(model: Llama, bits: int, group: int) -> dict[str, Tensor]:
    """Without AWQ: each weight to its nearest step."""
    return {
        name: oracles.rounded(weight.double(), bits, group)
        if name.removesuffix(".weight").endswith(LINEARS)
        else weight.double()
        for name, weight in model.state_dict().items()
    }


def block_errors(model: Llama, state: dict[str, Tensor], tokens: Tensor) -> dict[str, float]:
    """How far each attention and each MLP of `state` is from the model's, given the same residual
    stream: ‖difference‖² / ‖its output‖², the norm before it included."""
    exact, other = plain(model.config, model.state_dict()), plain(model.config, state)
    states = record(exact, tokens).states
    positions = torch.arange(tokens.shape[1]).unsqueeze(0)
    cos_sin = cos_sin_at(positions, model.config.head_dim, model.config.rope_theta)
    cos_sin = tuple(part.double() for part in cos_sin)

    def attend(q, k, v):
        return attend_causally(0, q, k, v)

    errors = {}
    for i, (right, got, x) in enumerate(zip(exact.layers, other.layers, states, strict=False)):
        between = x + right.attention(right.attention_norm(x), cos_sin, attend)
        outputs = {
            f"attention {i}": [
                layer.attention(layer.attention_norm(x), cos_sin, attend) for layer in (right, got)
            ],
            f"MLP {i}": [layer.mlp(layer.mlp_norm(between)) for layer in (right, got)],
        }
        for name, (expected, came) in outputs.items():
            squares = [t.square().sum().item() for t in (came - expected, expected)]
            errors[name] = squares[0] / squares[1]
    return errors
