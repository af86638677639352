"""Models with salient channels, and how far a quantised one is from them, block by block."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assignment.provided.compression import LINEARS, linears, record
from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.llama import attend_causally
from assignment.provided.models.rotary import cos_sin_at
from tests.compression import oracles_awq as oracles
from tests.compression.awq_inputs import ROOM, assert_at_most, assert_near
from tests.compression.oracles_quantization import layer_bytes
from tests.grading.boundary import kept_bytes
from tests.grading.closeness import assert_equal

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here

LEAST_GAIN = 1.5  # of AWQ over rounding to the nearest

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


def folded_anyhow(draw, model: Llama, fold, over_group) -> dict[str, Tensor]:
    """The model's state dict, with random scales folded in at all places; o_proj's are equal where
    query heads share what they read."""
    state, config = dict(model.state_dict()), model.config
    for layer in range(config.num_layers):
        for before, names in oracles.READERS.items():
            names = [f"layers.{layer}.{name}.weight" for name in names]
            scale = divisor = draw.normal(state[names[0]].shape[1]).exp()
            if before == "attention.v_proj":
                divisor = over_group(scale, config.num_heads, config.num_kv_heads)
                scale = oracles.for_queries(divisor, config)
            before = f"layers.{layer}.{before}.weight"
            state[before], _ = fold(state[before], [], divisor)
            _, scaled = fold(torch.ones_like(scale), [state[name] for name in names], scale)
            state |= dict(zip(names, scaled, strict=True))
    return state


def dequantized(result) -> dict[str, Tensor]:
    """The state dict of plain weights that stand for those of a model of quantised layers."""
    held = dict(result.state_dict().items())
    layers = [f"layers.{i}.{part}" for i in range(result.config.num_layers) for part in LINEARS]
    prefixes = tuple(f"{layer}." for layer in layers)
    state = {name: value.double() for name, value in held.items() if not name.startswith(prefixes)}
    for layer in layers:
        weight = held.get(f"{layer}.weight")
        is_plain = weight is not None and weight.is_floating_point()
        assert not is_plain, f"{layer}: expected a QuantizedLinear, found a layer of plain weights"
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


def block_errors(model: Llama, state: dict[str, Tensor], tokens: Tensor) -> list[float]:
    """How far three parts of each layer of `state` are from the model's, given the same residual
    stream: attention, attention that reads where the model reads, and the MLP, the norm before it
    included. ‖difference‖² / ‖the model's output‖²."""
    exact, other = plain(model.config, model.state_dict()), plain(model.config, state)
    states, positions = record(exact, tokens).states, torch.arange(tokens.shape[1]).unsqueeze(0)
    cos_sin = cos_sin_at(positions, model.config.head_dim, model.config.rope_theta)
    cos_sin = tuple(part.double() for part in cos_sin)
    errors = []
    for right, got, x in zip(exact.layers, other.layers, states, strict=False):
        attend = _Attend()
        expected, whole, reading = (
            layer.attention(layer.attention_norm(x), cos_sin, attend_so)
            for layer, attend_so in (
                (right, attend.keep),
                (got, attend.anew),
                (got, attend.as_kept),
            )
        )
        between = x + expected
        of_mlp, came = (layer.mlp(layer.mlp_norm(between)) for layer in (right, got))
        pairs = (whole, expected), (reading, expected), (came, of_mlp)
        errors += [_relative(*pair) for pair in pairs]
    return errors


class _Attend:
    """Attention by its own queries and keys, or by those kept before."""

    def keep(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._kept = q, k
        return self.anew(q, k, v)

    def anew(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend_causally(0, q, k, v)

    def as_kept(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.anew(*self._kept, v)


def _relative(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).square().sum() / expected.square().sum())


def assert_as_near(got, expected, nearest):
    """`block_errors`: none above that of AWQ in float64; on average, well below rounding's (a
    quarter of it in the median draw, 1 / 1.97 in the worst of thousands)."""
    parts = "attention", "attention that reads where the model reads", "MLP"
    rows = zip(got, expected, nearest, strict=True)
    for place, (came, least, alone) in enumerate(rows):
        part = f"layers.{place // len(parts)}, {parts[place % len(parts)]}"
        what = f"{part}: error, in those of AWQ in float64 (rounding alone has {alone / least:.3g})"
        assert_at_most(came / least, 1.02, what)
    gain = math.exp(sum(math.log(a / b) for a, b in zip(nearest, got, strict=True)) / len(got))
    assert gain >= LEAST_GAIN, f"gain over rounding: expected at least {LEAST_GAIN}, got {gain:.3g}"


def assert_norms_have_scales(model, state, tokens, bits, group):
    """What each norm was divided by is the scale of an α of the list, and hardly worse than the
    best."""
    inputs = record(model, tokens).inputs
    for layer in range(model.config.num_layers):
        for norm in ("attention_norm", "mlp_norm"):
            name = f"layers.{layer}.{norm}.weight"
            scale = model.state_dict()[name].double() / state[name]
            choice = oracles.choice(model, layer, norm, inputs, bits, group)
            offs = [
                (scale / oracles.scale_of(choice.magnitudes, alpha) - 1).abs().max().item()
                for alpha in oracles.ALPHAS
            ]
            found, what = offs.index(min(offs)), f"what {name} was divided by"
            assert_at_most(min(offs), 1e-3, f"{what}: distance to the nearest scale of the list")
            assert_at_most(choice.errors[found], ROOM * min(choice.errors), f"{what}: error")


def assert_not_clipped(model, state, bits, group):
    """Each weight of q_proj and k_proj, times the scale that the norm was divided by, is within
    half a step of what it became."""
    for layer in range(model.config.num_layers):
        norm = f"layers.{layer}.attention_norm.weight"
        scale = model.state_dict()[norm].double() / state[norm]
        for name in oracles.NOT_CLIPPED:
            name = f"layers.{layer}.{name}.weight"
            weight = model.state_dict()[name].double() * scale
            off = (state[name] - weight).abs() / oracles.step_of(weight, bits, group)
            assert_at_most(off.max().item(), 0.501, f"{name}: steps from the scaled weight")


def assert_computes_with_its_codes(result, tokens):
    expected = plain(result.config, dequantized(result))(tokens)
    got = result(tokens).detach()
    assert_near(got, expected, axes="row place token", what="logits", rounding=1e-4)


def assert_codes_alone(model, result, bits, group):
    """Each linear layer takes what packed codes, zero points and scales take, in any packing that
    a `QuantizedLinear` may have; and beside them and the tables the result keeps nothing."""
    state = dict(result.state_dict().items())
    layers = linears(model)
    others = [weight for key, weight in model.state_dict().items() if _owner(key) not in layers]
    room = sum(weight.numel() * weight.element_size() for weight in others)
    for name, layer in layers.items():
        held = [value for key, value in state.items() if _owner(key) == name]
        size = sum(value.numel() * value.element_size() for value in held)
        least, most = layer_bytes(*layer.weight.shape, bits, group)
        assert_equal(size, min(max(size, least), most + 16), what=f"bytes of {name}")
        room += most + 16
    kept = kept_bytes(result)
    assert_equal(kept, min(kept, room), what="bytes that the result keeps, on attributes too")


def _owner(key: str) -> str:
    """The module that a name in a state dict belongs to."""
    return key.rpartition(".")[0]
