"""The models that are compared, and how all of them are trained."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.exact import ExactLaw
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import AttentionLayer, LayeredLlama, Llama, LlamaConfig
from assignment.provided.models.training import Batches
from solutions.attention.cross_layer import SharedAttention
from solutions.attention.grouped_query import GroupedQueryAttention, pool_kv_heads
from solutions.attention.latent import LatentAttention

SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: the same for every model."""

    steps: int
    learning_rate: float
    warm_up: int
    stories_per_step: int


SCHEDULE = Schedule(steps=500, learning_rate=4e-3, warm_up=50, stories_per_step=8)

MHA = LlamaConfig(
    vocab_size=647,
    num_layers=4,
    d_model=128,
    num_heads=8,
    num_kv_heads=8,
    head_dim=16,
    d_ff=256,
)
FULL = AttentionLayer()
LATENT = AttentionLayer(latent_dim=56, rope_dim=8)  # 3.5 and 0.5 heads; DeepSeek-V2 has 4 and 0.5

# MHA keeps 1024 numbers a token, all others 256. What they save on attention they get back in d_ff,
# and then have as many parameters as MHA; not so the two "same MLP".
MODELS = {
    "MHA": MHA,
    "2 heads": replace(MHA, num_heads=2, num_kv_heads=2, d_ff=384),
    "GQA": replace(MHA, num_kv_heads=2, d_ff=320),
    "MLA": replace(MHA, d_ff=261, attention=(LATENT,) * 4),
    "CLA2": replace(
        MHA,
        num_kv_heads=4,
        d_ff=320,
        attention=(FULL, AttentionLayer(reads=0), FULL, AttentionLayer(reads=2)),
    ),
    "MQA": replace(MHA, num_kv_heads=1, head_dim=32, d_ff=235),
    "GQA, same MLP": replace(MHA, num_kv_heads=2),
    "2 heads, same MLP": replace(MHA, num_heads=2, num_kv_heads=2),
    "8 small heads": replace(MHA, head_dim=4, d_ff=384),
}

# MHA becomes GQA: how its KV heads become fewer, and for how many steps it then trains on.
CONVERTED = MODELS["GQA, same MLP"]
MERGES = ("mean", "first", "random", "none")  # none: MHA itself, trained on as long
UPTRAINING_STEPS = (0, SCHEDULE.steps // 20, SCHEDULE.steps // 10)


def made(config: LlamaConfig, seed: int) -> nn.Module:
    """The untrained model. A Llama where all layers are full: it has the weights and the results
    of the LayeredLlama, and a faster attention."""
    if all(layer.kind == "full" for layer in config.attention_layers):
        return Llama(config, seed=seed)
    kinds = {"full": GroupedQueryAttention, "latent": LatentAttention, "shared": SharedAttention}
    return LayeredLlama(config, kinds, seed=seed)


def merged(mha: Llama, merge: str, seed: int) -> Llama:
    """The GQA model with the weights of a trained MHA model, its KV heads merged by `merge`."""
    if merge == "none":
        other = Llama(mha.config, seed=None)
        other.load_state_dict(mha.state_dict())
        return other
    old, new, head_dim = mha.config.num_kv_heads, CONVERTED.num_kv_heads, mha.config.head_dim
    generator = torch.Generator().manual_seed(seed)

    def fewer(weight: Tensor) -> Tensor:
        if merge == "mean":
            return pool_kv_heads(weight, old, new)
        if merge == "first":
            return weight.view(new, old // new, head_dim, -1)[:, 0].flatten(0, 1)
        inputs = weight.shape[1]
        return torch.randn(new * head_dim, inputs, generator=generator) * inputs**-0.5

    weights = {
        name: fewer(weight) if name.endswith(("k_proj.weight", "v_proj.weight")) else weight
        for name, weight in mha.state_dict().items()
    }
    other = Llama(CONVERTED, seed=None)
    other.load_state_dict(weights)
    return other


class StoryLoss:
    """loss(step) of `model`: how far its law of the next token is from the grammar's, in nats a
    token (the KL divergence; 0 is perfect). Every story comes once.

    Args:
        model: what is trained.
        steps: of the training.
        seed: decides which stories come when; the same for every model.
        start: the first story's number in the training split.
    """

    def __init__(self, model: nn.Module, steps: int, seed: int, start: int = 0):
        tokenizer, size = load_tokenizer(), SCHEDULE.stories_per_step
        texts = story_texts("train", steps * size, start)
        self._model, self._law = model, ExactLaw(tokenizer)
        self._batches = Batches([tokenizer.document(text) for text in texts], size, seed)

    def __call__(self, step: int) -> Tensor:
        tokens, real = self._batches(step)
        laws = [self._law(row[mask].tolist()) for row, mask in zip(tokens, real, strict=True)]
        logits = zip(self._model(tokens), laws, strict=True)
        predicted, true = torch.cat([row[: len(law)] for row, law in logits]), torch.cat(laws)
        entropy = torch.special.entr(true).sum(dim=-1).mean()
        return F.cross_entropy(predicted, true) - entropy
