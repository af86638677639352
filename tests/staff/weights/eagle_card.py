"""The EAGLE layer's page, from its figures."""

from . import guess_card

ABOUT = "One layer that goes on from the target's last hidden states, and guesses the next ones."


def page(found: dict, medusa: dict) -> str:
    """The card's text. medusa: the figures of Medusa, of the same stories."""
    recipe, choices = found["recipe"], [tuple(choice) for choice in found["choices"]]
    parts = [
        f"# eagle\n\n{ABOUT}\n",
        "Written by `make weights ARGS=eagle`. All figures are of the weights in",
        "`eagle.safetensors`; in brackets, 95% intervals.\n",
        guess_card.table(["", ""], _sizes(found, recipe)),
        "![the loss over the training](eagle.svg)\n",
        "## What of a chain is accepted\n",
        f"{found['test_stories']} stories of the test split begin with {found['prompt']} tokens, "
        f"and the target adds up to {found['new']}.",
        f"{found['num_draft']} tokens are drafted in a row, at the target's temperature. How often "
        "each is accepted",
        "when those before it are, beside those of the draft model:\n",
        guess_card.table(["temperature", "token", "EAGLE", "draft model"], _accepted(found)),
        "## What that is worth\n",
        "New tokens a call of the target, when it decodes these stories: by EAGLE, with such a",
        f"chain and with a tree of {len(choices)} guesses; by Medusa with its tree of "
        f"{len(medusa['choices'])}; and by the draft",
        "model with such a chain.\n",
        guess_card.table(
            ["temperature", "EAGLE, chain", "EAGLE, tree", "Medusa, tree", "draft model"],
            _tokens_a_round(found, medusa),
        ),
        "Above temperature 0 a guess of a tree is accepted if the target draws that very token; a",
        "token of a chain, as often as the two distributions have it in common.\n",
        "The tree, chosen on validation stories: " + ", ".join(map(str, choices)) + ".",
    ]
    return "\n".join(parts) + "\n"


def _sizes(found: dict, recipe: dict) -> list[list[object]]:
    training = (
        f"{recipe['steps']:,} steps of {recipe['stories_per_step']} stories of the train split, "
        "each seen once; the target stays as it is"
    )
    return [
        ["layers", 1],
        ["parameters", f"{found['parameters']:,}"],
        ["file", f"{found['file_bytes']:,} bytes, float16"],
        ["training", training],
        ["learned from", "the target's hidden states and distributions on these stories"],
        ["peak learning rate, seed", f"{recipe['learning_rate']}, {recipe['seed']}"],
    ]


def _accepted(found: dict) -> list[list[object]]:
    return [
        [temperature, i + 1, *(guess_card.interval(figure, True) for figure in figures)]
        for temperature, by in found["accepted"].items()
        for i, figures in enumerate(zip(by["eagle"], by["draft"], strict=True))
    ]


def _tokens_a_round(found: dict, medusa: dict) -> list[list[str]]:
    rows = []
    for temperature, by in found["tokens_a_round"].items():
        of_medusa = medusa["tokens_a_round"][temperature]["tree"]
        figures = by["chain"], by["tree"], of_medusa, by["draft"]
        rows.append([temperature, *map(guess_card.interval, figures)])
    return rows
