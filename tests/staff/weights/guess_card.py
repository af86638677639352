"""The cards of what guesses the target's tokens, and the files that are written of it."""

import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from safetensors.torch import save_file
from torch import nn

from .card import STYLE

LOSS_EVERY = 20  # steps that a point of the curve is the mean of


def curve(losses: Sequence[float]) -> list[float]:
    starts = range(0, len(losses), LOSS_EVERY)
    groups = [losses[start : start + LOSS_EVERY] for start in starts]
    return [round(sum(group) / len(group), 4) for group in groups]


def saved(module: nn.Module, path: Path) -> dict:
    """Write the weights in float16; their figures."""
    tensors = {name: t.half().contiguous() for name, t in module.state_dict().items()}
    save_file(tensors, path)
    path.chmod(0o644)  # safetensors keeps it to its owner
    parameters = sum(tensor.numel() for tensor in tensors.values())
    return {"parameters": parameters, "file_bytes": path.stat().st_size}


def write(folder: Path, name: str, figures: dict, page: str, loss: str) -> None:
    """<name>.json, <name>.md and <name>.svg; `loss` names the curve's unit."""
    text = json.dumps(figures, indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(page, encoding="utf-8")
    with plt.rc_context(STYLE):
        picture, axes = plt.subplots(figsize=(5.6, 2.8), layout="constrained")
        points = figures["losses"]
        axes.plot([(i + 0.5) * figures["loss_every"] for i in range(len(points))], points, lw=1.2)
        axes.set(xlabel="step", ylabel=loss, ylim=(0, 2.5 * points[-1]))
        axes.spines[["top", "right"]].set_visible(False)
        picture.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(picture)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def interval(figure: dict, percent: bool = False) -> str:
    form = "{:.1%}" if percent else "{:.2f}"
    mean, low, high = (form.format(figure[key]) for key in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"
