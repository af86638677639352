"""The EAGLE layer of the toy target: how it is trained, and what it guesses right."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import Llama
from assignment.provided.models.llama import draw_weights
from assignment.provided.models.toy import WEIGHTS
from assignment.provided.models.training import Batches, optimizers, padded, progress, train
from assignment.provided.speculative import Draft, LlamaPast, TreePast
from solutions.speculative.decoding import ModelDraft, speculative_generate
from solutions.speculative.eagle import EagleDrafter, eagle_generate, eagle_loss
from solutions.speculative.medusa import Choice

from . import guess_card, rounds
from .eagle_card import page
from .measure import Figure, ratio
from .medusa import best_tree

GUESSES = 15  # nodes of the tree below its root, as Medusa's
BEST, DEEPEST = 6, 5  # ranks that the tree may use, and its depth
CHOSEN_ON = 100  # validation stories
MEASURED_ON = 200  # test stories, those of Medusa's figures
TEMPERATURES = (0.0, 1.0)
NOISE = 0.1  # added to the features that are read in training: uniform, up to so much (the paper's)

Round = tuple[int, int]  # tokens drafted one behind the other, and how many of them were accepted


@dataclass(frozen=True)
class Recipe:
    steps: int = 1000
    learning_rate: float = 1e-2
    stories_per_step: int = 8
    warm_up: int = 30
    seed: int = 4


RECIPE = Recipe()


def trained(
    recipe: Recipe, documents: Sequence[list[int]], target: Llama, folder: Path
) -> tuple[EagleDrafter, list[float]]:
    """The drafter after its training, and the loss of every step.

    In its training, features and embeddings are divided by the root of their mean square: the
    target's features are tens in size, and the loss knows a difference of 1.
    """
    batches = Batches(documents, recipe.stories_per_step, recipe.seed)
    size = _size(target.hidden(padded(documents[:100])[0]))
    embedding = target.embedding.weight
    drafter = EagleDrafter(target.config, embedding / _size(embedding))
    draw_weights(drafter, recipe.seed)

    def loss(step: int) -> Tensor:
        tokens, real = batches(step)
        with torch.no_grad():
            features = target.hidden(tokens)
            logits = target.logits(features)
        features = features / size
        generator = torch.Generator().manual_seed(step)
        noise = NOISE * (2 * torch.rand(features.shape, generator=generator) - 1)
        predicted = drafter((features + noise)[:, :-1], tokens[:, 1:])
        return eagle_loss(predicted, target.logits(predicted * size), features, logits, real)

    with progress(recipe.steps, "eagle") as on_step:
        losses = train(
            drafter,
            loss,
            optimizers(drafter, recipe.learning_rate),
            recipe.steps,
            warm_up=recipe.warm_up,
            checkpoint=folder / "eagle.pt",
            recipe=f"{asdict(recipe)}, {len(documents)} stories, noise {NOISE}",
            on_step=on_step,
        )
    return in_the_targets_units(drafter.requires_grad_(False), target, size), losses


def _size(vectors: Tensor) -> float:
    return float(vectors.square().mean().sqrt())


def in_the_targets_units(drafter: EagleDrafter, target: Llama, size: float) -> EagleDrafter:
    """A drafter that reads features and embeddings as they are, and predicts `size` times as much.

    Norms undo a factor: what adds to the sum between them gets it, and the rest stays.
    """
    weights = {name: weight.clone() for name, weight in drafter.state_dict().items()}
    weights["join.weight"][:, target.config.d_model :] *= size / _size(target.embedding.weight)
    for name in ("layer.attention.o_proj.weight", "layer.mlp.down_proj.weight"):
        weights[name] *= size
    return loaded(target, weights)


def loaded(target: Llama, weights: dict[str, Tensor]) -> EagleDrafter:
    drafter = EagleDrafter(target.config, target.embedding.weight).requires_grad_(False)
    drafter.load_state_dict(weights)
    return drafter


class Recorded:
    """A past that keeps account of its rounds.

    drafted: how deep what was fed was, below the newest token. kept: the nodes that stayed. Of each
    call but that of the prompt.
    """

    def __init__(self, past: TreePast):
        self._past, self._before = past, 0
        self.logits = past.logits
        self.drafted: list[int] = []
        self.kept: list[list[int]] = []

    @property
    def length(self) -> int:
        return self._past.length

    def feed(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        self._before = self.length
        if self._before:
            self.drafted.append(int(positions.max()) - self._before)
        return self._past.feed(tokens, positions, mask)

    def keep(self, slots: Sequence[int]) -> None:
        self.kept.append([slot - self._before for slot in slots[self._before :]])
        self._past.keep(slots)

    @property
    def rounds(self) -> list[Round]:
        return [(most, len(nodes) - 1) for most, nodes in zip(self.drafted, self.kept, strict=True)]


def decoded(
    target: Llama,
    drafter: EagleDrafter,
    draft: int | list[Choice],
    prompts: Sequence[list[int]],
    temperature: float,
) -> tuple[list[list[int]], list[Recorded]]:
    """The new tokens of each prompt, and what happened to its past."""
    width = (2 * draft + 1,) if isinstance(draft, int) else ()
    options = {"temperature": temperature, "stop_tokens": load_tokenizer().stop_tokens}
    answers, pasts = [], []
    for prompt, uniforms in zip(prompts, rounds.uniforms_of(len(prompts), *width), strict=True):
        pasts.append(Recorded(LlamaPast(target)))
        arguments = pasts[-1], drafter, prompt, rounds.NEW, draft
        answers.append(eagle_generate(*arguments, uniforms=uniforms, **options))
    return answers, pasts


def decoded_by_the_draft(
    target: Llama, draft: Llama, prompts: Sequence[list[int]], temperature: float
) -> list[list[Round]]:
    """The rounds of each prompt when the draft model guesses."""
    model = ModelDraft(rounds.session_of(draft, len(prompts)), temperature)
    asked: list[tuple[list[int], list[int]]] = []  # lengths, and how many may be drafted

    def propose(sequences: list[list[int]], most: list[int], uniforms: Tensor) -> Draft:
        asked.append(([len(sequence) for sequence in sequences], most))
        return model(sequences, most, uniforms)

    answers = speculative_generate(
        rounds.session_of(target, len(prompts)),
        propose,
        list(prompts),
        rounds.NEW,
        rounds.NUM_DRAFT,
        temperature=temperature,
        uniforms=rounds.uniforms_of(len(prompts), 2 * rounds.NUM_DRAFT + 1),
        stop_tokens=load_tokenizer().stop_tokens,
    )
    found = []
    for b, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        lengths = [of_all[b] for of_all, _ in asked] + [len(prompt) + len(answer)]
        gained = [after - before for before, after in pairwise(lengths)]
        drafted = [most[b] for _, most in asked]
        found.append([(n, new - 1) for n, new in zip(drafted, gained, strict=True) if new])
    return found


def by_position(stories: Sequence[Sequence[Round]], num_draft: int) -> list[Figure]:
    """How often drafted token i is accepted when those before it are, for i = 0 … num_draft − 1."""
    figures = []
    for i in range(num_draft):
        tried = [sum(n > i and accepted >= i for n, accepted in of_one) for of_one in stories]
        passed = [sum(n > i and accepted > i for n, accepted in of_one) for of_one in stories]
        figures.append(ratio(passed, tried))
    return figures


def chosen_tree(target: Llama, drafter: EagleDrafter) -> list[Choice]:
    """Chosen on validation stories, at temperature 0: how often each rank is right at each depth,
    below the best guesses of the depths before."""
    best = [(0,) * depth for depth in range(1, DEEPEST + 1)]
    wide = [(*guess[1:], rank) for guess in best for rank in range(BEST)]
    prompts = rounds.prompts_of("validation", CHOSEN_ON)
    asked, right = Counter(), Counter()
    for past in decoded(target, drafter, wide, prompts, 0.0)[1]:
        for deepest, nodes in zip(past.drafted, past.kept, strict=True):
            if deepest == DEEPEST:  # a whole tree, not one that was cut at the end
                path = [wide[node - 1] for node in nodes[1:]]
                asked.update(d for d in range(DEEPEST) if path[:d] == best[:d])
                right.update((len(choice) - 1, choice[-1]) for choice in path)
    shares = [[right[d, rank] / asked[d] for rank in range(BEST)] for d in range(DEEPEST)]
    return best_tree(shares, GUESSES)


def figures(target: Llama, draft: Llama, drafter: EagleDrafter) -> dict:
    """What the drafter guesses right, and what that is worth."""
    choices, prompts = chosen_tree(target, drafter), rounds.prompts_of("test", MEASURED_ON)
    accepted, given = {}, {}
    for temperature in TEMPERATURES:
        ways = {
            "chain": decoded(target, drafter, rounds.NUM_DRAFT, prompts, temperature),
            "tree": decoded(target, drafter, choices, prompts, temperature),
        }
        of_chain = [past.rounds for past in ways["chain"][1]]
        of_draft = decoded_by_the_draft(target, draft, prompts, temperature)
        accepted[str(temperature)] = {
            "eagle": [asdict(figure) for figure in by_position(of_chain, rounds.NUM_DRAFT)],
            "draft": [asdict(figure) for figure in by_position(of_draft, rounds.NUM_DRAFT)],
        }
        given[str(temperature)] = {
            way: asdict(
                ratio(
                    [len(answer) - 1 for answer in answers],  # but the token of the prompt's call
                    [len(past.kept) for past in pasts],
                )
            )
            for way, (answers, pasts) in ways.items()
        } | {"draft": asdict(rounds.by_the_draft(target, draft, prompts, temperature))}
    return {
        "choices": choices,
        "test_stories": MEASURED_ON,
        "prompt": rounds.PROMPT,
        "new": rounds.NEW,
        "num_draft": rounds.NUM_DRAFT,
        "accepted": accepted,
        "tokens_a_round": given,
    }


def make(into: Path, unfinished: Path, target: Llama, draft: Llama, documents: list) -> dict:
    """Train, measure, write; the figures. Medusa's card has to be there, to be shown beside."""
    medusa = json.loads((WEIGHTS / "medusa.json").read_text(encoding="utf-8"))
    drafter, losses = trained(RECIPE, documents, target, unfinished)
    sizes = guess_card.saved(drafter, into / "eagle.safetensors")
    kept = {name: tensor.half().float() for name, tensor in drafter.state_dict().items()}
    found = {
        "recipe": asdict(RECIPE),
        **sizes,
        "loss_every": guess_card.LOSS_EVERY,
        "losses": guess_card.curve(losses),
        **figures(target, draft, loaded(target, kept)),  # what is measured is what is kept
    }
    guess_card.write(into, "eagle", found, page(found, medusa), "loss")
    (unfinished / "eagle.pt").unlink()
    return found
