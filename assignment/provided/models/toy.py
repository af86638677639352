"""The toy models: small Llamas that were trained on the stories, and know them fairly well.

    target   2 million parameters, 6 layers
    draft    a tenth of that, 1 layer, for speculative decoding; it never saw the target

    model = load_toy("target")
    tokenizer = load_tokenizer()          # of assignment.provided.data.tokenizer
    tokenizer.decode(generate(…, [[tokenizer.begin]], …)[0])

And weights for what guesses the target's next tokens from its hidden states:

    medusa   3 heads, for `speculative.medusa`
    eagle    a layer, for `speculative.eagle`

    heads = MedusaHeads(3, target.embedding.weight)
    heads.load_state_dict(load_heads("medusa"))

Each has a card, weights/<name>.md: how it was trained, and what it can do.
"""

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from .llama import Llama

WEIGHTS = Path(__file__).with_name("weights")
TOY_MODELS = ("target", "draft")
HEADS = ("medusa", "eagle")


def load_toy(name: str) -> Llama:
    """A toy model, in float32 (the file has float16) and without gradients; to train on, call
    `requires_grad_()`.

    Raises:
        ValueError: if there is no model of this name.
    """
    if name not in TOY_MODELS:
        raise ValueError(f"name: expected one of {', '.join(TOY_MODELS)}, got {name!r}")
    return Llama.load(WEIGHTS / f"{name}.safetensors").float().requires_grad_(False)


def load_heads(name: str) -> dict[str, Tensor]:
    """The state dict of what was trained to guess the target's tokens, in float32 (the file has
    float16).

    Raises:
        ValueError: if there is none of this name.
    """
    if name not in HEADS:
        raise ValueError(f"name: expected one of {', '.join(HEADS)}, got {name!r}")
    tensors = load_file(WEIGHTS / f"{name}.safetensors")
    return {key: tensor.float() for key, tensor in tensors.items()}
