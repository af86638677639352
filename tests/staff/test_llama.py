"""The given Llama against a slow independent one; its promises about seeds, files and the seam."""

import ast
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import assignment.provided
from assignment.provided.models import Llama, LlamaConfig, rotate

CONFIG = LlamaConfig(
    vocab_size=37,
    num_layers=3,
    d_model=24,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    d_ff=40,
    rope_theta=500.0,
)
TOKENS = torch.tensor([[5, 1, 30, 2, 2, 17, 9], [0, 36, 8, 8, 21, 3, 4]])


def slow_logits(model: Llama, tokens: list[int]) -> torch.Tensor:
    """Logits for one sequence in float64: one token and one head at a time, rotation by complex
    numbers."""
    c = model.config
    weights = {name: value.double() for name, value in model.state_dict().items()}
    head = weights.get("head.weight", weights["embedding.weight"])

    def norm(x, name):
        return x / torch.sqrt((x * x).mean() + c.norm_eps) * weights[name]

    def turned(x, position):
        half = c.head_dim // 2
        angles = [position * c.rope_theta ** (-2 * i / c.head_dim) for i in range(half)]
        turn = torch.polar(torch.ones(half).double(), torch.tensor(angles).double())
        pairs = torch.complex(x[:half], x[half:]) * turn
        return torch.cat([pairs.real, pairs.imag])

    stream = [weights["embedding.weight"][token] for token in tokens]
    for layer in range(c.num_layers):
        name = f"layers.{layer}."
        inputs = [norm(x, f"{name}attention_norm.weight") for x in stream]

        def heads(letter, inputs=inputs, name=name):
            rows = weights[f"{name}attention.{letter}_proj.weight"]
            return [(rows @ x).split(c.head_dim) for x in inputs]

        q, k, v = heads("q"), heads("k"), heads("v")
        for t in range(len(tokens)):
            read = []
            for head_index in range(c.num_heads):
                kv = head_index // (c.num_heads // c.num_kv_heads)
                query = turned(q[t][head_index], t)
                keys = torch.stack([turned(k[s][kv], s) for s in range(t + 1)])
                share = torch.softmax(keys @ query / math.sqrt(c.head_dim), 0)
                read.append(share @ torch.stack([v[s][kv] for s in range(t + 1)]))
            stream[t] = stream[t] + weights[f"{name}attention.o_proj.weight"] @ torch.cat(read)
        for t, x in enumerate(stream):
            x = norm(x, f"{name}mlp_norm.weight")
            gate, up = (weights[f"{name}mlp.{part}_proj.weight"] @ x for part in ("gate", "up"))
            down = weights[f"{name}mlp.down_proj.weight"]
            stream[t] = stream[t] + down @ (gate * torch.sigmoid(gate) * up)
    return torch.stack([head @ norm(x, "norm.weight") for x in stream])


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_equal_the_slow_model(kv_heads, tied):
    model = Llama(replace(CONFIG, num_kv_heads=kv_heads, tie_embeddings=tied), seed=3)
    with torch.no_grad():
        logits = model(TOKENS)
        for row, tokens in enumerate(TOKENS.tolist()):
            expected = slow_logits(model, tokens)
            assert (logits[row] - expected).abs().max() < 2e-5 * expected.abs().max()


@torch.no_grad()
def test_norm_weights_are_used():
    model = Llama(CONFIG)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.uniform_(0.5, 2.0)
    expected = slow_logits(model, TOKENS[0].tolist())
    assert (model(TOKENS)[0] - expected).abs().max() < 2e-5 * expected.abs().max()


def test_every_token_moves_every_later_logit_and_no_earlier_one():
    model = Llama(CONFIG)
    before = model(TOKENS)
    changed = TOKENS.clone()
    changed[0, 2] = 11
    difference = (model(changed) - before).abs().amax(-1)
    assert difference[0, :2].max() == 0 and difference[1].max() == 0
    assert difference[0, 2:].min() > 0.05 * before.std()


def test_bfloat16_is_near_float32():
    model = Llama(CONFIG)
    exact = model(TOKENS)
    rounded = model.to(torch.bfloat16)(TOKENS)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).abs().max() < 0.1 * exact.abs().max()


def test_angles_are_float32_in_a_bfloat16_model():
    model, seen = Llama(CONFIG).to(torch.bfloat16), []
    model.layers[0].register_forward_pre_hook(lambda layer, given: seen.append(given[1]))
    model(TOKENS[:1, :2], torch.tensor([[256, 257]]))
    for found, function in zip(seen[0], (torch.cos, torch.sin), strict=True):
        assert found.dtype == torch.float32
        assert found[0, 0, :, 0].tolist() == function(torch.tensor([256.0, 257.0])).tolist()


# Seeds


def test_the_seed_alone_decides_the_weights():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again, other = Llama(CONFIG, seed=7), Llama(CONFIG, seed=7), Llama(CONFIG, seed=8)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
        assert value.dim() == 1 or not torch.equal(value, other.state_dict()[name])


# The seam


def test_attend_sees_each_layer_once_with_rotated_queries_and_keys():
    model, seen = Llama(CONFIG), []

    def attend(layer, q, k, v):
        seen.append((layer, q, k, v))
        return torch.zeros_like(q)

    model(TOKENS, attend=attend)
    assert [layer for layer, *_ in seen] == [0, 1, 2]
    shapes = [[list(t.shape) for t in tensors] for _, *tensors in seen]
    assert shapes == [[[2, 6, 7, 8], [2, 2, 7, 8], [2, 2, 7, 8]]] * 3

    moved = []
    model(
        TOKENS, torch.arange(7).unsqueeze(0) + 100, lambda *given: moved.append(given) or given[1]
    )
    assert torch.equal(moved[0][3], seen[0][3])  # values do not turn
    assert not torch.allclose(moved[0][2], seen[0][2])
    dots = [(t[1][:, :2] * t[2]).sum(-1) for t in (seen[0], moved[0])]
    torch.testing.assert_close(*dots, rtol=1e-3, atol=1e-3)  # only differences of positions matter


def test_positions_may_differ_by_row():
    model = Llama(CONFIG)
    starts = torch.tensor([[0], [40]])
    seen = []
    model(TOKENS, torch.arange(7) + starts, lambda *given: seen.append(given) or given[1])
    alone = []
    model(TOKENS[1:], torch.arange(7)[None] + 40, lambda *given: alone.append(given) or given[1])
    torch.testing.assert_close(seen[0][2][1:], alone[0][2])


def test_attend_must_return_the_shape_of_q():
    with pytest.raises(ValueError, match=r"attend.*\[2, 6, 7, 8\].*\[2, 7, 6, 8\]"):
        Llama(CONFIG)(TOKENS, attend=lambda layer, q, k, v: q.transpose(1, 2))


def test_hidden_then_logits_of_the_last_position():
    model = Llama(CONFIG)
    last = model.logits(model.hidden(TOKENS)[:, -1:])
    torch.testing.assert_close(last, model(TOKENS)[:, -1:])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"num_kv_heads": 4}, "num_heads"), ({"head_dim": 7}, "head_dim")],
)
def test_impossible_sizes_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **wrong)


# Files


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_saved_model_comes_back_the_same(tmp_path, tied, dtype):
    model = Llama(replace(CONFIG, tie_embeddings=tied), seed=5).to(dtype)
    model.save(tmp_path / "model.safetensors")
    loaded = Llama.load(tmp_path / "model.safetensors")
    assert loaded.config == model.config
    assert torch.equal(loaded(TOKENS), model(TOKENS))
    assert loaded(TOKENS).dtype == dtype
    loaded(TOKENS).float().sum().backward()  # it can be trained on


def test_a_file_that_is_no_llama_is_refused(tmp_path):
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="config"):
        Llama.load(tmp_path / "other.safetensors")
    with pytest.raises(FileNotFoundError):
        Llama.load(tmp_path / "missing.safetensors")


# Rotation


def test_rotation_by_hand():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)
    angles = torch.tensor([math.pi / 2, math.pi]).view(1, 1, 2)
    expected = torch.tensor([-3.0, -2.0, 1.0, -4.0]).view(1, 1, 1, 4)  # pairs (1, 3) and (2, 4)
    torch.testing.assert_close(rotate(x, angles), expected)


def test_rotation_keeps_lengths_and_dtype():
    x, angles = torch.randn(2, 3, 5, 8), torch.randn(2, 5, 4) * 100
    torch.testing.assert_close(rotate(x, angles).norm(dim=-1), x.norm(dim=-1))
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        assert rotate(x.to(dtype), angles).dtype == dtype


def test_rotation_of_bfloat16_rounds_only_the_result():
    x, angles = torch.randn(1, 2, 5, 8).bfloat16(), torch.randn(1, 5, 4) * 1000
    assert torch.equal(rotate(x, angles), rotate(x.float(), angles).bfloat16())


@pytest.mark.parametrize(
    ("x", "angles", "message"),
    [
        ((1, 1, 2, 7), (1, 2, 3), "even"),
        ((2, 1, 3, 8), (2, 3, 8), "angles"),
        ((2, 1, 3, 8), (3, 4), "angles"),
    ],
)
def test_rotation_refuses_shapes_that_do_not_fit(x, angles, message):
    with pytest.raises(ValueError, match=message):
        rotate(torch.zeros(x), torch.zeros(angles))


# The package


def test_provided_imports_nothing_a_student_writes():
    folder = Path(assignment.provided.__file__).parent
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                assert top not in ("solutions", "submission", "tests"), f"{path} imports {name}"
                assert top != "assignment" or name.startswith("assignment.provided"), path
