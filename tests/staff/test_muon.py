"""The optimizers of the training loop: who gets what, and Muon against torch's own."""

import pytest
import torch
from torch import nn

from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.training import Muon, optimizers, train
from assignment.provided.models.training.muon import orthogonal

CONFIG = LlamaConfig(
    vocab_size=23, num_layers=2, d_model=12, num_heads=2, num_kv_heads=1, head_dim=6, d_ff=20
)
SHAPES = [(12, 12), (20, 7), (7, 20), (1, 9)]


@pytest.mark.parametrize("tied", [True, False])
def test_muon_gets_the_matrices_and_adamw_the_rest(tied):
    model = Llama(LlamaConfig(**{**vars(CONFIG), "tie_embeddings": tied}))
    model.layers[0].mlp.up_proj.weight.requires_grad_(False)
    model.layers[1].mlp_norm.weight.requires_grad_(False)
    names = {parameter: name for name, parameter in model.named_parameters()}
    muon, adamw = (
        sorted(names.pop(p) for group in optimizer.param_groups for p in group["params"])
        for optimizer in optimizers(model, 0.01)
    )
    assert len(muon) == 2 * 7 - 1 and all(name.endswith("_proj.weight") for name in muon)
    assert adamw == sorted(
        ["embedding.weight", "norm.weight", "layers.0.attention_norm.weight"]
        + ["layers.0.mlp_norm.weight", "layers.1.attention_norm.weight"]
        + ([] if tied else ["head.weight"])
    )
    decay = [
        {group["weight_decay"] for group in optimizer.param_groups}
        for optimizer in optimizers(model, 0.01)
    ]
    assert decay == [{0.1}, {0.0}]
    assert sorted(names.values()) == ["layers.0.mlp.up_proj.weight", "layers.1.mlp_norm.weight"]


@pytest.mark.parametrize("model", [nn.Embedding(3, 2), nn.Linear(3, 2, bias=False)])
def test_a_model_may_have_only_matrices_or_none(model):
    train(model, lambda step: model.weight.square().sum(), optimizers(model, 0.01), 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonal_keeps_directions_and_evens_lengths(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 37.0
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonal(matrix)
    along = u.T @ found @ vt.T  # diagonal if the directions are kept
    lengths = along.diagonal()
    assert found.shape == shape
    assert (along - torch.diag(lengths)).abs().max() < 1e-4
    assert lengths.min() > 0.6 and lengths.max() < 1.3
    assert torch.allclose(orthogonal(1e-3 * matrix), found, atol=1e-4)
    assert orthogonal(torch.zeros(shape)).isfinite().all()


@pytest.mark.parametrize("shape", SHAPES)
def test_muon_is_torchs_muon(shape):
    draw = torch.Generator().manual_seed(1)
    start = torch.randn(shape, generator=draw)
    gradients = [torch.randn(shape, generator=draw) for _ in range(10)]
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    steppers = (
        Muon([ours], lr=0.05),
        torch.optim.Muon([theirs], lr=0.05, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    )
    for gradient in gradients:
        for parameter, stepper in zip((ours, theirs), steppers, strict=True):
            parameter.grad = gradient.clone()
            stepper.step()
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() < 0.03 * moved  # theirs rounds to bfloat16


def test_muon_leaves_alone_what_has_no_gradient_and_changes_no_gradient():
    still, moved = nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(2, 3))
    moved.grad = torch.arange(6.0).view(2, 3)
    Muon([still, moved], lr=0.1).step()
    assert still.equal(torch.ones(3, 2)) and not moved.equal(torch.ones(2, 3))
    assert moved.grad.equal(torch.arange(6.0).view(2, 3))
