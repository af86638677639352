"""Where SmolLM2's large activations are, and what they cost: for smollm2_compression.py."""

from __future__ import annotations

from statistics import mean

import torch
from torch import Tensor

from assignment.provided.compression import Recording, linears, record
from assignment.provided.models import Llama
from submission.compression.llm_int8 import Int8Linear, int8_share, outlier_columns

from smollm2_ways import Int8Both, mean_nats, replaced  # isort: skip

THRESHOLDS = [2.0, 4.0, 6.0, 10.0, 20.0, 100.0, None]  # None: no column is left out
CARRIERS = {
    "q, k, v": ("q_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "gate, up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
}
TOKENS, BINS = 24, 64  # of the heat maps


def threshold_rows(model: Llama, text: Tensor) -> list[dict]:
    """LLM.int8() with each threshold: nats, and the share of products that is done in 8 bits."""
    recordings = [record(model, row) for row in text.split(1)]
    rows = []
    for threshold in THRESHOLDS:
        least = torch.inf if threshold is None else threshold
        changed = replaced(model, lambda weight, least=least: Int8Linear(weight, least))
        share = mean(_share(model, recording, least) for recording in recordings)
        rows.append(
            {
                "threshold": threshold,
                "nats": round(mean_nats(changed, text), 4),
                "share": round(share, 5),
            }
        )
        print(f"  {rows[-1]}", flush=True)
    return rows


def _share(model: Llama, recording: Recording, threshold: float) -> float:
    """Of all products with the blocks' weights."""
    sizes = {name: layer.weight.numel() for name, layer in linears(model).items()}
    shares = {name: int8_share(x, threshold) for name, x in recording.inputs.items()}
    return sum(shares[name] * size for name, size in sizes.items()) / sum(sizes.values())


def carrier_rows(model: Llama, text: Tensor) -> list[dict]:
    """W8A8 per tensor in some of the layers only."""
    rows = []
    for name, ends in CARRIERS.items():
        changed = replaced(model, lambda weight: Int8Both(weight, "tensor"), ends)
        rows.append({"layers": name, "nats": round(mean_nats(changed, text), 4)})
        print(f"  {rows[-1]}", flush=True)
    return rows


def outlier_rows(model: Llama, text: Tensor) -> list[dict]:
    """Of each layer, on one window: the largest |values| by token and by channel."""
    recording = record(model, text[:1])
    states = [state[0].abs() for state in recording.states[1:]]
    channel = int(torch.stack(states).amax(dim=(0, 1)).argmax())
    rows = []
    for layer, state in enumerate(states):
        inputs = {
            name: recording.inputs[f"layers.{layer}.{part}"]
            for name, part in (
                ("q, k, v", "attention.q_proj"),
                ("o", "attention.o_proj"),
                ("gate, up", "mlp.gate_proj"),
                ("down", "mlp.down_proj"),
            )
        }
        down = inputs["down"][0].abs()
        others = state.index_fill(1, torch.tensor([channel]), 0)
        rows.append(
            {
                "layer": layer,
                "channel": channel,
                "down_by_token": _short(down.amax(dim=1)[:TOKENS]),
                "down_by_channel": _short(down.amax(dim=0).unflatten(0, (BINS, -1)).amax(dim=1)),
                "down_by_channel_later": _short(
                    down[1:].amax(dim=0).unflatten(0, (BINS, -1)).amax(dim=1)
                ),
                "residual": _short(state[:TOKENS, channel]),
                "residual_others": _short(others.amax(dim=1)[:TOKENS]),
                "columns": {name: len(outlier_columns(x)) for name, x in inputs.items()},
            }
        )
    return rows


def _short(values: Tensor) -> list[float]:
    return [float(f"{value:.3g}") for value in values.tolist()]
