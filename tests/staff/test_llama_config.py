"""Which attention layers a config may have, and how it goes through a file."""

import json
from dataclasses import asdict, replace

import pytest
import torch

from assignment.provided.models import AttentionLayer, Llama, LlamaConfig

FULL, LOCAL = AttentionLayer(), AttentionLayer(window=4)
LATENT = AttentionLayer(latent_dim=5, rope_dim=2)
ALL_KINDS = (FULL, LOCAL, LATENT, AttentionLayer(reads=0), AttentionLayer(reads=1))
SIZES = {"d_model": 12, "num_heads": 4, "num_kv_heads": 2, "head_dim": 6, "d_ff": 20}
CONFIG = LlamaConfig(31, 5, **SIZES, rope_theta=300.0, attention=ALL_KINDS)


def test_kinds():
    kinds = ["full", "local", "latent", "shared", "shared"]
    assert [layer.kind for layer in ALL_KINDS] == kinds
    assert CONFIG.attention_layers == ALL_KINDS
    assert replace(CONFIG, attention=()).attention_layers == (FULL,) * 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"window": 0}, "window"),
        ({"window": -4}, "window"),
        ({"latent_dim": 0, "rope_dim": 2}, "latent_dim"),
        ({"latent_dim": 4, "rope_dim": 0}, "rope_dim"),
        ({"latent_dim": 4, "rope_dim": 3}, "rope_dim"),
        ({"latent_dim": 4}, "both"),
        ({"rope_dim": 4}, "both"),
        ({"window": 4, "latent_dim": 4, "rope_dim": 2}, "window, or latents"),
        ({"window": 4, "reads": 0}, "layer to read"),
        ({"latent_dim": 4, "rope_dim": 2, "reads": 0}, "layer to read"),
    ],
)
def test_impossible_layers_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        AttentionLayer(**wrong)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((FULL, FULL), "each of 3 layers, got 2"),
        ((FULL,) * 4, "each of 3 layers, got 4"),
        ((AttentionLayer(reads=0), FULL, FULL), r"attention\[0\]"),
        ((AttentionLayer(reads=1), FULL, FULL), r"attention\[0\]"),
        ((FULL, AttentionLayer(reads=-1), FULL), r"attention\[1\]"),
        ((FULL, FULL, AttentionLayer(reads=3)), r"attention\[2\]"),
        ((FULL, LATENT, AttentionLayer(reads=1)), r"attention\[2\].*keeps keys"),
        ((FULL, AttentionLayer(reads=0), AttentionLayer(reads=1)), r"attention\[2\]"),
    ],
)
def test_impossible_configs_are_refused(layers, message):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, num_layers=3, attention=layers)


def test_a_config_survives_json():
    for config in (CONFIG, replace(CONFIG, attention=())):
        again = LlamaConfig(**json.loads(json.dumps(asdict(config))))
        assert again == config and hash(again) == hash(config)
    assert again.attention == ()


def test_a_llama_with_full_layers_is_saved_and_loaded(tmp_path):
    config = replace(CONFIG, attention=(FULL,) * 5)
    model = Llama(config)
    model.save(tmp_path / "model.safetensors")
    loaded, tokens = Llama.load(tmp_path / "model.safetensors"), torch.arange(31)[None]
    assert loaded.config == config
    assert torch.equal(loaded(tokens), model(tokens))


@pytest.mark.parametrize("layer", [LOCAL, LATENT, AttentionLayer(reads=0)])
def test_a_llama_has_full_layers_only(layer):
    with pytest.raises(ValueError, match="LayeredLlama"):
        Llama(replace(CONFIG, num_layers=2, attention=(FULL, layer)))
