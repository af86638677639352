"""Many calls of a paged cache in one go: what a test wants to see after each of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from .blocks import OutOfBlocks

REFUSALS = (OutOfBlocks, ValueError)


@dataclass(frozen=True)
class Outcome:
    """What one call did, and how the cache was left.

    value: what it returned; None where it refused.
    error, message: how it refused: "OutOfBlocks" or "ValueError", and in which words; else "".
    tables: the blocks of every open request.
    lengths, computed: the tokens of every open request, and how many of them are computed.
    num_free: blocks that no request holds.
    """

    value: object
    error: str
    message: str
    tables: dict[int, list[int]]
    lengths: dict[int, int]
    computed: dict[int, int]
    num_free: int


def run_script(cache: object, calls: Sequence[tuple[str, list]]) -> list[Outcome]:
    """Call the cache's methods one after another: ("open", [0, [5, 6, 7]]), ("close", [0]), …

    ("commit", [0]), without a count, commits all tokens of request 0 that are not computed.
    Refusals are noted. Any other exception ends the script: it is a fault of the cache.
    """
    requests: set[int] = set()
    outcomes = []
    for name, arguments in calls:
        value, error, message = None, "", ""
        try:
            if name == "commit" and len(arguments) == 1:
                arguments = [*arguments, cache.length(*arguments) - cache.computed(*arguments)]
            value = getattr(cache, name)(*arguments)
        except REFUSALS as refusal:
            kind = next(kind for kind in REFUSALS if isinstance(refusal, kind))
            error, message = kind.__name__, str(refusal)
        else:
            opened = {"open": arguments[:1], "fork": arguments[1:2]}.get(name, [])
            requests = requests | set(opened) if name != "close" else requests - {arguments[0]}
        outcomes.append(_outcome(cache, requests, value, error, message))
    return outcomes


def _outcome(cache, requests: set[int], value: object, error: str, message: str) -> Outcome:
    return Outcome(
        value,
        error,
        message,
        tables={request: list(cache.table(request)) for request in sorted(requests)},
        lengths={request: cache.length(request) for request in sorted(requests)},
        computed={request: cache.computed(request) for request in sorted(requests)},
        num_free=cache.num_free,
    )
