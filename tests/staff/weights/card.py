"""A model's card: one page for people, drawn from its figures."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

# Text as text, and no date and random ids inside: the same figures give the same picture.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "card", "font.size": 9}
ABOUT = {
    "target": "The model that is made fast: the later units quantise, prune, page and batch it.",
    "draft": "The small model that guesses what the target says. It saw the stories only.",
}


def write_card(folder: Path, name: str, figures: dict) -> None:
    """Write <name>.md and <name>.svg."""
    _draw_losses(folder / f"{name}.svg", figures)
    (folder / f"{name}.md").write_text(page(name, figures), encoding="utf-8")


def _draw_losses(path: Path, figures: dict) -> None:
    curve = figures["losses"]
    with plt.rc_context(STYLE):
        picture, axes = plt.subplots(figsize=(5.6, 2.8), layout="constrained")
        axes.plot([(i + 0.5) * figures["loss_every"] for i in range(len(curve))], curve, lw=1.2)
        for label, nats in (
            ("5-gram", figures["ngram_nats"]["mean"]),
            ("the grammar's entropy", figures["entropy"]["mean"]),
        ):
            axes.axhline(nats, color="0.5", lw=0.8, ls="--")
            axes.text(axes.get_xlim()[1], nats, label, ha="right", va="top", color="0.4")
        axes.set(xlabel="step", ylabel="loss, nats a token", ylim=(0.5, 3.0))
        axes.spines[["top", "right"]].set_visible(False)
        picture.savefig(path, metadata={"Date": None})
        plt.close(picture)


def page(name: str, figures: dict) -> str:
    """The card's text."""
    parts = [
        f"# {name}\n\n{ABOUT[name]}\n",
        "Written by `make weights`. All figures are of the weights in",
        f"`{name}.safetensors`; in brackets, 95% intervals.\n",
        _table("", _sizes(figures)),
        f"![the loss over the training]({name}.svg)\n",
        "## How well it knows the stories\n",
        f"On {figures['test_stories']:,} stories of the test split, which no training has seen.",
        "A token is a word, so nothing can beat the grammar's own perplexity, the exponential of",
        "its entropy rate.\n",
        _table("| perplexity", _perplexities(figures)),
        "Of these stories' questions it answers right, taking its best token each time:",
        f"{_interval(figures['answered'], percent=True)}.\n",
        "## What it tells by itself\n",
        f"{figures['told_stories']:,} stories told at temperature 1, read by the checker of",
        "`assignment.provided.data.stories`. The grammar's own stories break no rule.\n",
        _table("", _violations(figures)),
    ]
    if "acceptance" in figures:
        parts += [
            "## As a draft for the target\n",
            "The share of its tokens that speculative sampling accepts, on average over",
            f"{figures['acceptance_positions']:,} places or more of stories that the target told",
            "at that temperature. (At 0, where both take their best token, of those told at 1.)\n",
            _table("temperature | accepted", _acceptance(figures)),
        ]
    parts += ["## Two of its stories\n", *(_quote(text) for text in figures["samples"])]
    return "\n".join(parts)


def _table(heading: str, rows: list[tuple[str, str]]) -> str:
    left, _, right = heading.partition("|")
    lines = [f"| {left.strip()} | {right.strip()} |", "|---|---|"]
    return "\n".join(lines + [f"| {key} | {value} |" for key, value in rows]) + "\n"


def _sizes(figures: dict) -> list[tuple[str, str]]:
    config, recipe = figures["config"], figures["recipe"]
    return [
        ("parameters", f"{figures['parameters']:,}"),
        ("file", f"{figures['file_bytes']:,} bytes, float16"),
        (
            "layers, width, MLP",
            f"{config['num_layers']}, {config['d_model']}, {config['d_ff']}",
        ),
        (
            "query heads, KV heads, head size",
            f"{config['num_heads']}, {config['num_kv_heads']}, {config['head_dim']}",
        ),
        ("vocabulary", f"{config['vocab_size']}, embedding and head tied"),
        (
            "training",
            f"{recipe['steps']:,} steps of {recipe['stories_per_step']} stories"
            " of the train split, each seen once",
        ),
        (
            "learned from",
            "the exact law of every next word" if recipe["from_law"] else "the stories' words",
        ),
        ("peak learning rate, seed", f"{recipe['learning_rate']}, {recipe['seed']}"),
    ]


def _interval(figure: dict, digits: int = 3, percent: bool = False) -> str:
    if percent:
        mean, low, high = (f"{figure[key]:.1%}" for key in ("mean", "low", "high"))
    else:
        mean, low, high = (f"{figure[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _perplexities(figures: dict) -> list[tuple[str, str]]:
    return [
        ("the grammar", _interval(figures["grammar_perplexity"])),
        ("this model", _interval(figures["perplexity"])),
        ("this model over the grammar", _interval(figures["perplexity_over_grammar"])),
        (
            f"{figures['ngram_order']}-gram of {figures['training_stories']:,} stories",
            _interval(figures["ngram_perplexity"]),
        ),
    ]


def _violations(figures: dict) -> list[tuple[str, str]]:
    found = figures["violations"]
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(found["kinds"].items()))
    return [
        ("stories that break a rule", _interval(found["stories"], percent=True)),
        ("sentences in a hundred that break one", _interval(found["sentences"], digits=2)),
        ("by kind", kinds or "none"),
    ]


def _acceptance(figures: dict) -> list[tuple[str, str]]:
    return [(t, _interval(figure, percent=True)) for t, figure in figures["acceptance"].items()]


def _quote(text: str) -> str:
    return "\n".join(f"> {line.strip()}  " for line in text.split("\n")) + "\n"
