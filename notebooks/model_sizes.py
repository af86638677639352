"""Sizes of models that many know, from their public config.json files.

Biases, where a model has any, are left out. Sources name the repository on huggingface.co; the
papers are Touvron et al., 2023, arXiv:2307.09288 (Llama 2), Grattafiori et al., 2024,
arXiv:2407.21783 (Llama 3), Jiang et al., 2023, arXiv:2310.06825 (Mistral), Zhang et al., 2024,
arXiv:2401.02385 (TinyLlama) and Allal et al., 2025, arXiv:2502.02737 (SmolLM2).
"""

from __future__ import annotations

from dataclasses import dataclass

from assignment.provided.models import AttentionLayer, LlamaConfig


@dataclass(frozen=True)
class KnownModel:
    config: LlamaConfig
    source: str


def _model(
    source: str,
    sizes: tuple[int, int, int, int, int, int, int],
    tied: bool = False,
    window: int | None = None,
) -> KnownModel:
    """sizes: V, L, D, N, K, H, F in the letters of the course."""
    layers = () if window is None else (AttentionLayer(window=window),) * sizes[1]
    return KnownModel(LlamaConfig(*sizes, tie_embeddings=tied, attention=layers), source)


MODELS = {
    "smollm2": _model(
        "HuggingFaceTB/SmolLM2-135M-Instruct", (49_152, 30, 576, 9, 3, 64, 1536), tied=True
    ),
    "tinyllama": _model("TinyLlama/TinyLlama-1.1B-Chat-v1.0", (32_000, 22, 2048, 32, 4, 64, 5632)),
    "llama-2-7b": _model("meta-llama/Llama-2-7b-hf", (32_000, 32, 4096, 32, 32, 128, 11_008)),
    "llama-2-13b": _model("meta-llama/Llama-2-13b-hf", (32_000, 40, 5120, 40, 40, 128, 13_824)),
    "llama-2-70b": _model("meta-llama/Llama-2-70b-hf", (32_000, 80, 8192, 64, 8, 128, 28_672)),
    "llama-3-8b": _model("meta-llama/Meta-Llama-3-8B", (128_256, 32, 4096, 32, 8, 128, 14_336)),
    "llama-3-70b": _model("meta-llama/Meta-Llama-3-70B", (128_256, 80, 8192, 64, 8, 128, 28_672)),
    "llama-3.2-1b": _model(
        "meta-llama/Llama-3.2-1B", (128_256, 16, 2048, 32, 8, 64, 8192), tied=True
    ),
    "mistral-7b": _model(
        "mistralai/Mistral-7B-v0.1", (32_000, 32, 4096, 32, 8, 128, 14_336), window=4096
    ),
}
