"""Three Medusa heads on the toy target: how they are trained, and what they guess right."""

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import AdamW

from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import Llama
from assignment.provided.models.training import Batches, padded, progress, train
from assignment.provided.speculative import TreePast
from solutions.speculative.medusa import Choice, MedusaHeads, medusa_generate, medusa_loss

from . import guess_card, rounds
from .measure import ratio

ABOUT = "Heads that guess the target's tokens two, three and four places on from its hidden state."
GUESSES = 15  # nodes of the tree below its root
BEST = 6  # ranks of a head that the tree may use
CHOSEN_ON = 100  # validation stories
MEASURED_ON = 200  # test stories
TEMPERATURES = (0.0, 1.0)
WAYS = ("tree", "chain", "draft")
CHAIN = [(0,) * depth for depth in (1, 2, 3)]


@dataclass(frozen=True)
class Recipe:
    num_heads: int = 3
    steps: int = 1000
    learning_rate: float = 1e-2
    stories_per_step: int = 8
    warm_up: int = 30
    seed: int = 3


RECIPE = Recipe()


def trained(
    recipe: Recipe, documents: Sequence[list[int]], target: Llama, folder: Path
) -> tuple[MedusaHeads, list[float]]:
    """The heads after their training, and the loss of every step."""
    heads = MedusaHeads(recipe.num_heads, target.embedding.weight)
    batches = Batches(documents, recipe.stories_per_step, recipe.seed)

    def loss(step: int) -> Tensor:
        tokens, real = batches(step)
        with torch.no_grad():
            hidden = target.norm(target.hidden(tokens))
        return medusa_loss(heads(hidden), tokens, real)

    with progress(recipe.steps, "medusa") as on_step:
        losses = train(
            heads,
            loss,
            [AdamW(heads.parameters(), recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)],
            recipe.steps,
            warm_up=recipe.warm_up,
            checkpoint=folder / "medusa.pt",
            recipe=f"{asdict(recipe)}, {len(documents)} stories",
            on_step=on_step,
        )
    return heads.requires_grad_(False), losses


def empty(target: Llama) -> MedusaHeads:
    """Heads to load the weights into."""
    return MedusaHeads(RECIPE.num_heads, target.embedding.weight).requires_grad_(False)


@torch.no_grad()
def ranks(target: Llama, heads: MedusaHeads, texts: Sequence[list[int]]) -> list[list[Tensor]]:
    """ranks[m][i]: of text i, for each place behind the prompt, at which rank head m has the token
    that comes 2 + m places on."""
    tokens, _ = padded(texts)
    logits = heads(target.norm(target.hidden(tokens)))
    found: list[list[Tensor]] = []
    for m in range(logits.shape[2]):
        of_head = []
        for row, text in zip(logits, texts, strict=True):
            first = rounds.PROMPT - 1  # the place that the first guesses are made at
            said = row[first : max(len(text) - 2 - m, first), m]
            right = torch.tensor(text[first + 2 + m :], dtype=torch.int64)[:, None]
            of_head.append((said > said.gather(1, right)).sum(dim=1))
        found.append(of_head)
    return found


def best_tree(shares: Sequence[Sequence[float]], size: int) -> list[Choice]:
    """The `size` guesses that are most often right: shares[m][r] is how often head m's rank r is,
    and heads are taken to be right independently (section 2.3.3 of the paper)."""
    waiting = [(-share, (rank,)) for rank, share in enumerate(shares[0])]
    heapq.heapify(waiting)
    chosen: list[Choice] = []
    while waiting and len(chosen) < size:
        negative, choice = heapq.heappop(waiting)
        chosen.append(choice)
        if len(choice) < len(shares):
            for rank, share in enumerate(shares[len(choice)]):
                heapq.heappush(waiting, (negative * share, (*choice, rank)))
    return sorted(chosen, key=lambda choice: (len(choice), choice))


def chosen_tree(target: Llama, heads: MedusaHeads) -> list[Choice]:
    """Chosen on validation stories, at temperature 0."""
    texts = rounds.told(target, rounds.prompts_of("validation", CHOSEN_ON), 0.0)
    shares = [
        [float((torch.cat(of_head) == rank).double().mean()) for rank in range(BEST)]
        for of_head in ranks(target, heads, texts)
    ]
    return best_tree(shares, GUESSES)


def figures(target: Llama, draft: Llama, heads: MedusaHeads) -> dict:
    """What the heads guess right, and what that is worth."""
    choices = chosen_tree(target, heads)
    prompts = rounds.prompts_of("test", MEASURED_ON)
    right, given = {}, {}
    for temperature in TEMPERATURES:
        texts = rounds.told(target, prompts, temperature)
        right[str(temperature)] = [
            [
                asdict(ratio([int((r < best).sum()) for r in of_head], list(map(len, of_head))))
                for best in (1, 3)
            ]
            for of_head in ranks(target, heads, texts)
        ]
        given[str(temperature)] = {
            way: asdict(
                rounds.by_guesses(target, guessing(target, heads, tree), prompts, temperature)
            )
            for way, tree in (("tree", choices), ("chain", CHAIN))
        } | {"draft": asdict(rounds.by_the_draft(target, draft, prompts, temperature))}
    return {
        "choices": choices,
        "test_stories": MEASURED_ON,
        "prompt": rounds.PROMPT,
        "new": rounds.NEW,
        "num_draft": rounds.NUM_DRAFT,
        "right": right,
        "tokens_a_round": given,
    }


def guessing(target: Llama, heads: MedusaHeads, choices: list[Choice]) -> rounds.Guessing:
    stop_tokens = load_tokenizer().stop_tokens

    def guess(past: TreePast, prompt: list[int], temperature: float, uniforms: Tensor) -> list[int]:
        return medusa_generate(
            past,
            lambda hidden: heads(target.norm(hidden)),
            prompt,
            rounds.NEW,
            choices,
            temperature=temperature,
            uniforms=uniforms,
            stop_tokens=stop_tokens,
        )

    return guess


def make(into: Path, unfinished: Path, target: Llama, draft: Llama, documents: list) -> dict:
    """Train, measure, write; the figures."""
    heads, losses = trained(RECIPE, documents, target, unfinished)
    sizes = guess_card.saved(heads, into / "medusa.safetensors")
    kept = {name: tensor.half().float() for name, tensor in heads.state_dict().items()}
    heads.load_state_dict(kept)  # what is measured is what is kept
    found = {
        "recipe": asdict(RECIPE),
        **sizes,
        "loss_every": guess_card.LOSS_EVERY,
        "losses": guess_card.curve(losses),
        **figures(target, draft, heads),
    }
    guess_card.write(into, "medusa", found, page(found), "loss, nats of all heads")
    (unfinished / "medusa.pt").unlink()
    return found


def page(found: dict) -> str:
    """The card's text."""
    recipe, choices = found["recipe"], [tuple(choice) for choice in found["choices"]]
    parts = [
        f"# medusa\n\n{ABOUT}\n",
        "Written by `make weights ARGS=medusa`. All figures are of the weights in",
        "`medusa.safetensors`; in brackets, 95% intervals.\n",
        guess_card.table(
            ["", ""],
            [
                ["heads", recipe["num_heads"]],
                ["parameters", f"{found['parameters']:,}"],
                ["file", f"{found['file_bytes']:,} bytes, float16"],
                [
                    "training",
                    f"{recipe['steps']:,} steps of {recipe['stories_per_step']} stories of the "
                    "train split, each seen once; the target stays as it is",
                ],
                ["learned from", "the stories' words"],
                ["peak learning rate, seed", f"{recipe['learning_rate']}, {recipe['seed']}"],
            ],
        ),
        "![the loss over the training](medusa.svg)\n",
        "## What the heads guess right\n",
        f"{found['test_stories']} stories of the test split begin with {found['prompt']} tokens, "
        f"and the target adds up to {found['new']}.",
        "At each of these places, how often a head's best guess, or one of its best three, is what",
        "the target says two, three or four tokens on.\n",
        guess_card.table(
            ["temperature", "tokens on", "best guess", "best three"],
            [
                [temperature, m + 2, *(guess_card.interval(figure, True) for figure in head)]
                for temperature, heads in found["right"].items()
                for m, head in enumerate(heads)
            ],
        ),
        "## What that is worth\n",
        "New tokens a call of the target, when it decodes these stories: with a tree of",
        f"{len(choices)} guesses, with the {len(CHAIN)} best guesses in a row, and beside them with"
        f" the draft model that guesses {found['num_draft']} tokens.\n",
        guess_card.table(
            ["temperature", "tree", "chain", "draft model"],
            [
                [temperature, *(guess_card.interval(by[name]) for name in WAYS)]
                for temperature, by in found["tokens_a_round"].items()
            ],
        ),
        "The tree, chosen on validation stories: " + ", ".join(map(str, choices)) + ".",
    ]
    return "\n".join(parts) + "\n"
