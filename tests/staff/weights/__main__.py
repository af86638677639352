"""Train the toy models, or what is left of their training; measure them; write weights and cards.

    python -m tests.staff.weights              target and draft, into provided/models/weights
    python -m tests.staff.weights medusa       the Medusa heads, for the target that is there
    python -m tests.staff.weights eagle        the EAGLE layer, likewise
    python -m tests.staff.weights --into DIR   elsewhere, to compare with what is there

It can be stopped and called again: build/weights keeps what was trained, until all is written.
Heads fit the target that they were trained on: train them anew when it is.
"""

import argparse
import importlib
import json
import math
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.stories import entropy, log_probability
from assignment.provided.data.tokenizer import StoryTokenizer, load_tokenizer
from assignment.provided.models import Llama
from assignment.provided.models.toy import HEADS, WEIGHTS, load_toy
from tests.staff.unfinished import run_alone
from tests.staff.weights import measure, ngram
from tests.staff.weights.card import write_card
from tests.staff.weights.guess_card import LOSS_EVERY, curve
from tests.staff.weights.measure import Figure
from tests.staff.weights.recipe import RECIPES, STORIES, trained, training_documents

REPOSITORY = Path(__file__).resolve().parents[3]
UNFINISHED = REPOSITORY / "build" / "weights"
HEADS_STORIES = 8000  # of the training split, for heads: a thousand steps of 8
TEST_STORIES = 1000
TOLD_STORIES = 1000
NGRAM_ORDER = 5
TEMPERATURES = (0.0, 0.5, 0.7, 1.0, 1.3)
POSITIONS = 10_000  # at least, of each temperature
SEED = 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make weights", description=__doc__.split("\n")[0])
    parser.add_argument("heads", nargs="*", help=f"{' or '.join(HEADS)}; default: the models")
    parser.add_argument("--into", type=Path, default=WEIGHTS, help="the folder to write to")
    asked = parser.parse_args(arguments)
    into = asked.into
    if unknown := set(asked.heads) - set(HEADS):
        parser.error(f"expected {' or '.join(HEADS)}, or nothing, got {', '.join(unknown)}")
    try:
        old = _figures_in(into)
    except (OSError, ValueError) as error:  # known now rather than after half an hour
        parser.error(f"--into: cannot use {into}: {error}")
    console = Console(stderr=True)
    if asked.heads:
        return run_alone(parser, UNFINISHED, lambda: _make_heads(asked.heads, into, console))
    return run_alone(parser, UNFINISHED, lambda: _make(into, old, console))


def _figures_in(into: Path) -> dict[str, dict]:
    """The figures that are there; `into` exists then, and can be written to."""
    into.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=into).close()
    paths = {name: into / f"{name}.json" for name in RECIPES}
    return {
        name: json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for name, path in paths.items()
    }


def _make_heads(names: list[str], into: Path, console: Console) -> None:
    console.print("telling the stories …")
    documents = training_documents(HEADS_STORIES)
    models = {name: load_toy(name) for name in RECIPES}
    for name in names:
        module = importlib.import_module(f"tests.staff.weights.{name}")
        module.make(into, UNFINISHED, models["target"], models["draft"], documents)


def _make(into: Path, old: dict[str, dict], console: Console) -> None:
    console.print("telling the stories …")
    documents = training_documents()
    models, figures = {}, {}
    for name, recipe in RECIPES.items():
        model, losses = trained(recipe, documents, UNFINISHED)
        path = UNFINISHED / f"{name}.safetensors"
        model.half().save(path)
        models[name] = Llama.load(path).float()  # what is measured is what is kept
        figures[name] = {
            "config": asdict(recipe.config),
            "recipe": {key: value for key, value in asdict(recipe).items() if key != "config"},
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "file_bytes": path.stat().st_size,
            "training_stories": STORIES,
            "loss_every": LOSS_EVERY,
            "losses": curve(losses),
        }

    console.print("measuring …")
    tokenizer = load_tokenizer()
    texts = list(story_texts("test", TEST_STORIES))
    common = _the_grammar(tokenizer, documents, texts)
    for name, model in models.items():
        figures[name] |= common | _own_figures(model, tokenizer, texts)
    figures["draft"] |= _as_draft(models["target"], models["draft"], tokenizer)
    _compare(console, old, figures)
    _write(into, figures)


def _in_tokens(tokenizer: StoryTokenizer, texts: list[str]) -> tuple[list[list[int]], list[int]]:
    """The token ids of each text, and how many of these are predicted."""
    documents = [tokenizer.document(text) for text in texts]
    return documents, [len(document) - 1 for document in documents]


def _the_grammar(tokenizer: StoryTokenizer, training: list[list[int]], texts: list[str]) -> dict:
    """What does not depend on a model: the entropy of the test stories, and the baseline."""
    documents, sizes = _in_tokens(tokenizer, texts)
    rate = measure.ratio([entropy(text) for text in texts], sizes)
    baseline = ngram.fit(training, NGRAM_ORDER, tokenizer.vocab_size)
    surprise = [-float(baseline.log_probabilities(document).sum()) for document in documents]
    grams = measure.ratio(surprise, sizes)
    return {
        "test_stories": TEST_STORIES,
        "entropy": asdict(rate),
        "grammar_perplexity": asdict(rate.map(math.exp)),
        "ngram_order": NGRAM_ORDER,
        "ngram_nats": asdict(grams),
        "ngram_perplexity": asdict(grams.map(math.exp)),
    }


def _own_figures(model: Llama, tokenizer: StoryTokenizer, texts: list[str]) -> dict:
    documents, sizes = _in_tokens(tokenizer, texts)
    surprise = measure.nats(model, documents)
    # Story by story, as the grammar's own surprise: what the stories happen to be cancels out.
    excess = [ours + log_probability(text) for ours, text in zip(surprise, texts, strict=True)]
    told = [tokenizer.decode(d) for d in measure.told(model, tokenizer, TOLD_STORIES, SEED)]
    return {
        "perplexity": asdict(measure.ratio(surprise, sizes).map(math.exp)),
        "perplexity_over_grammar": asdict(measure.ratio(excess, sizes).map(math.exp)),
        "answered": asdict(measure.answered(model, tokenizer, documents)),
        "told_stories": TOLD_STORIES,
        "violations": asdict(measure.violations_of(told)),
        "samples": told[:2],
    }


def _as_draft(target: Llama, draft: Llama, tokenizer: StoryTokenizer) -> dict:
    accepted: dict[str, Figure] = {}
    for temperature in TEMPERATURES:
        # greedy, a model tells one story only: take the places of those told at temperature 1
        at = temperature or 1.0
        told = measure.told(target, tokenizer, POSITIONS // 100, SEED + 1, at)
        assert sum(len(document) - 1 for document in told) >= POSITIONS
        accepted[str(temperature)] = asdict(measure.acceptance(target, draft, told, temperature))
    return {"acceptance_positions": POSITIONS, "acceptance": accepted}


def _compare(console: Console, old: dict[str, dict], figures: dict[str, dict]) -> None:
    """Show the figures, beside those that are there already."""
    table = Table("model", "figure", "here", "before", "ratio")
    for name, new in figures.items():
        for label, here, before in _main_figures(new, old[name]):
            there = ("–", "–") if before is None else (f"{before:.4f}", f"{here / before:.3f}")
            table.add_row(name, label, f"{here:.4f}", *there)
    console.print(table)


def _main_figures(new: dict, old: dict) -> list[tuple[str, float, float | None]]:
    paths = [("perplexity", ("perplexity",)), ("over the grammar", ("perplexity_over_grammar",))]
    paths.append(("stories with violations", ("violations", "stories")))
    paths += [(f"accepted at {t}", ("acceptance", t)) for t in new.get("acceptance", {})]
    return [(label, _look(new, keys), _look(old, keys)) for label, keys in paths]


def _look(figures: dict, keys: tuple[str, ...]) -> float | None:
    for key in keys:
        figures = figures.get(key, {})
    return figures.get("mean")


def _write(into: Path, figures: dict[str, dict]) -> None:
    for name, of_one in figures.items():
        shutil.copyfile(UNFINISHED / f"{name}.safetensors", into / f"{name}.safetensors")
        text = json.dumps(of_one, indent=1, ensure_ascii=False)
        (into / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        write_card(into, name, of_one)
    for name in figures:  # only when all is written: what is stopped before can be called again
        (UNFINISHED / f"{name}.safetensors").unlink()
        (UNFINISHED / f"{name}.pt").unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
