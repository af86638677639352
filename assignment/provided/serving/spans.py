"""What each request did in which steps, and what that comes to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .step import Chunk, Step


@dataclass(frozen=True)
class Span:
    """Steps first … stop − 1, in all of which a request did the same.

    kind: "waiting": it holds nothing.
          "prefill": several tokens, or some of several.
          "decode": one token behind those that are there, and the next comes from it.
          "held": it runs, but the step had no room for its tokens.
          "padding": it has finished, and its row is computed for nothing.
    tokens: how many were computed in each step.
    """

    kind: str
    first: int
    tokens: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.first + len(self.tokens)


@dataclass(frozen=True)
class History:
    """One request: its spans in order, and the steps in which it was preempted."""

    spans: tuple[Span, ...]
    preempted: tuple[int, ...]


@dataclass(frozen=True)
class Counts:
    """Steps in a few numbers.

    steps: calls of the model; a step without chunks is none.
    slots: rows that a step has for requests.
    useful: of steps · slots, those in which a request computed tokens of its own: no padding.
    tokens: rows through the linear layers.
    again: of these, tokens that had been computed before, and lost.
    found: tokens whose keys and values were there already: of a prefix, or of a fork's origin.
    preempted: how often a request lost its blocks.
    """

    steps: int
    slots: int
    useful: int
    tokens: int
    again: int
    found: int
    preempted: int

    @property
    def useful_share(self) -> float:
        return self.useful / (self.steps * self.slots) if self.useful else 0.0


def read_steps(steps: Sequence[Step]) -> dict[int, History]:
    """The history of each request, by number: from the step in which it is first seen on."""
    seen: dict[int, dict[int, tuple[str, int]]] = {}
    preempted: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        for number in step.preempted:
            preempted.setdefault(number, []).append(index)
        for number in step.waiting:
            seen.setdefault(number, {})[index] = ("waiting", 0)
    for work in _work(steps):
        seen.setdefault(work.chunk.request, {})[work.index] = (work.kind, len(work.chunk.tokens))
    return {
        number: History(_spans(seen[number]), tuple(preempted.get(number, ())))
        for number in sorted(seen)
    }


def count_steps(steps: Sequence[Step], slots: int | None = None) -> Counts:
    """Args:
    slots: by default the most requests that were computed in one step.
    """
    work = list(_work(steps))
    return Counts(
        steps=sum(bool(step.chunks) for step in steps),
        slots=slots or max((len(step.chunks) for step in steps), default=0),
        useful=sum(each.kind != "padding" for each in work),
        tokens=sum(step.num_tokens for step in steps),
        again=sum(each.again for each in work),
        found=sum(each.found for each in work),
        preempted=sum(len(step.preempted) for step in steps),
    )


@dataclass(frozen=True)
class _Work:
    """One chunk, in the light of what came before it."""

    index: int
    chunk: Chunk
    kind: str
    again: int
    found: int


@dataclass
class _Progress:
    """`stop` tokens are there, the newest came from the last of them if `drawn`.

    `furthest`: as far as the request had come before it was preempted.
    """

    stop: int = 0
    drawn: bool = False
    furthest: int = 0


def _work(steps: Sequence[Step]) -> Iterator[_Work]:
    progress: dict[int, _Progress] = {}
    for index, step in enumerate(steps):
        for number in step.preempted:
            if number in progress:
                lost = progress[number]
                progress[number] = _Progress(furthest=max(lost.stop, lost.furthest))
        for chunk in step.chunks:
            before = progress.setdefault(chunk.request, _Progress())
            yield _Work(
                index,
                chunk,
                kind=_kind(before, chunk),
                again=max(0, min(chunk.stop, before.furthest) - chunk.start),
                found=max(0, chunk.start - before.stop),
            )
            before.stop = chunk.stop
            before.drawn = before.drawn or chunk.samples


def _kind(before: _Progress, chunk: Chunk) -> str:
    if before.drawn and not chunk.samples:
        return "padding"
    begins_behind_others = before.stop == 0 and chunk.start > 0
    if chunk.samples and len(chunk.tokens) == 1 and (before.drawn or begins_behind_others):
        return "decode"
    return "prefill"


def _spans(seen: dict[int, tuple[str, int]]) -> tuple[Span, ...]:
    spans: list[Span] = []
    for index in range(min(seen), max(seen) + 1):
        kind, tokens = seen.get(index, ("held", 0))
        if spans and spans[-1].kind == kind:
            spans[-1] = Span(kind, spans[-1].first, (*spans[-1].tokens, tokens))
        else:
            spans.append(Span(kind, index, (tokens,)))
    return tuple(spans)
