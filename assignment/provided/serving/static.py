"""Static batching, to compare with: a batch runs until the last of its answers is done."""

from collections import deque
from collections.abc import Mapping, Sequence

from assignment.provided.data.traces import Request

from .drive import drive
from .step import Chunk, Step

PADDING = 0  # the token that goes through the model where an answer has ended


class StaticBatches:
    """Plans steps as a `Scheduler` does, without a cache and with the oldest policy.

    When nobody is left, the first `max_sequences` of those that wait are a batch. All their prompts
    are computed in one step, whatever their lengths: padding of prompts is not counted. From
    then on each row takes a token a step; that of a request that has finished goes on
    (a chunk that does not sample, behind the request's last), until all of the batch have finished.
    """

    def __init__(self, max_sequences: int):
        self.max_sequences = max_sequences
        self._waiting: deque[tuple[int, list[int]]] = deque()
        self._rows: dict[int, list[int]] = {}  # tokens of each request of the batch
        self._computed: dict[int, int] = {}
        self._live: set[int] = set()

    def add(self, request: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        self._waiting.append((request, list(tokens)))

    def schedule(self) -> Step:
        if not self._live:
            count = min(self.max_sequences, len(self._waiting))
            self._rows = dict(self._waiting.popleft() for _ in range(count))
            self._computed = dict.fromkeys(self._rows, 0)
            self._live = set(self._rows)
        chunks = tuple(
            Chunk(number, self._computed[number], tuple(tokens[self._computed[number] :]),
                  number in self._live)
            for number, tokens in self._rows.items()
        )  # fmt: skip
        return Step(chunks, waiting=tuple(number for number, _ in self._waiting))

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        for number, tokens in self._rows.items():
            self._computed[number] = len(tokens)
            tokens.append(new_tokens.get(number, PADDING))

    def remove(self, request: int) -> None:
        self._live.remove(request)


def static_steps(
    requests: Sequence[Request], max_sequences: int, arrivals: Sequence[int] | None = None
) -> list[Step]:
    """The steps of static batching, for requests and arrivals as `drive` has them."""
    return drive(StaticBatches(max_sequences), requests, arrivals)
