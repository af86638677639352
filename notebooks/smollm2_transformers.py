"""SmolLM2 with the code of transformers and our weights, for smollm2_serving.py to compare with."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import nn

from assignment.provided.models import Llama

NAMES = {  # theirs for ours
    "embedding.": "model.embed_tokens.",
    "layers.": "model.layers.",
    "norm.": "model.norm.",
    ".attention.": ".self_attn.",
    ".attention_norm.": ".input_layernorm.",
    ".mlp_norm.": ".post_attention_layernorm.",
}


class TransformersNotInstalled(RuntimeError):
    """The message says how to get it."""


class Theirs:
    """A LlamaForCausalLM that shares its weights with `model`, in float32 with fused attention.

    Raises:
        TransformersNotInstalled: where it is not.
    """

    def __init__(self, model: Llama):
        try:
            import transformers
        except ImportError as error:
            raise TransformersNotInstalled(
                "transformers is not installed: get it with `make setup EXTRAS=dev`"
            ) from error
        self.version = transformers.__version__
        self.model = _with_weights(transformers, model)

    def generate(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
        """Greedy; every row gets exactly so many tokens. Shorter prompts are padded on the left."""
        return self._generate(prompts, new_tokens)[:, -new_tokens:].tolist()

    def token_times(self, prompt: Sequence[int], new_tokens: int) -> list[float]:
        """When each new token came, in seconds."""
        clock = _Clock()
        self._generate([prompt], new_tokens, streamer=clock)
        return clock.times[1:]  # the first to come is the prompt

    def _generate(self, prompts, new_tokens: int, **options) -> torch.Tensor:
        width = max(map(len, prompts))
        padded = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        is_token = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return self.model.generate(
            torch.tensor(padded),
            attention_mask=torch.tensor(is_token),
            max_new_tokens=new_tokens,
            do_sample=False,
            **options,
        )


class _Clock:
    """A streamer that notes when it was given something."""

    def __init__(self):
        self.times: list[float] = []

    def put(self, tokens: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is left to show."""


@torch.no_grad()
def _with_weights(transformers, model: Llama) -> nn.Module:
    sizes = model.config
    config = transformers.LlamaConfig(
        vocab_size=sizes.vocab_size,
        num_hidden_layers=sizes.num_layers,
        hidden_size=sizes.d_model,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        intermediate_size=sizes.d_ff,
        rope_theta=sizes.rope_theta,
        rms_norm_eps=sizes.norm_eps,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
        attn_implementation="sdpa",
        bos_token_id=None,
        eos_token_id=None,  # nothing but the number of tokens ends an answer
        pad_token_id=0,
    )
    theirs = transformers.LlamaForCausalLM(config).eval()
    weights = {_their_name(name): value for name, value in model.state_dict().items()}
    theirs.load_state_dict({**weights, "lm_head.weight": model.embedding.weight}, assign=True)
    theirs.tie_weights()
    return theirs


def _their_name(name: str) -> str:
    for ours, their in NAMES.items():
        if ours.startswith("."):
            name = name.replace(ours, their)
        elif name.startswith(ours):
            name = their + name.removeprefix(ours)
    return name


def spacing(times: Sequence[float]) -> float:
    """Seconds from one token to the next, on average: the first one's own time is not in it."""
    return (times[-1] - times[0]) / (len(times) - 1)
