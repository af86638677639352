"""A scheduler at work without a model: requests arrive, get made-up tokens, and finish."""

from collections.abc import Callable, Sequence

from assignment.provided.data.traces import Request

from .blocks import CountedBlocks
from .step import Step


class TellingBlocks(CountedBlocks):
    """A CountedBlocks that tells what it has been told.

    copies_for: request -> what `append` returns for it; by default nothing.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        find_prefix: Callable[[list[int]], int] | None = None,
        copies_for: Callable[[int], list[tuple[int, int]]] | None = None,
    ):
        super().__init__(num_blocks, block_size, find_prefix)
        self._copies_for = copies_for or (lambda request: [])
        self._computed: dict[int, int] = {}
        self._tokens: dict[int, list[int]] = {}

    @property
    def held(self) -> dict[int, tuple[list[int], int]]:
        """For each request the tokens that it has room for, and how many are computed."""
        return {
            number: (list(tokens), self._computed[number])
            for number, tokens in self._tokens.items()
        }

    def open(self, request: int, tokens: Sequence[int]) -> int:
        computed = super().open(request, tokens)
        self._computed[request] = computed
        self._tokens[request] = list(tokens)
        return computed

    def append(self, request: int, tokens: Sequence[int]) -> list[tuple[int, int]]:
        super().append(request, tokens)
        self._tokens[request] += tokens
        return self._copies_for(request)

    def commit(self, request: int, count: int) -> None:
        self._computed[request] += count

    def fork(self, request: int, new_request: int) -> None:
        super().fork(request, new_request)
        self._computed[new_request] = self._computed[request]
        self._tokens[new_request] = list(self._tokens[request])

    def close(self, request: int) -> None:
        super().close(request)
        del self._computed[request], self._tokens[request]


def drive(
    scheduler: object,
    requests: Sequence[Request],
    arrivals: Sequence[int] | None = None,
    most_steps: int = 100_000,
) -> list[Step]:
    """Every step until all requests have finished.

    Args:
        scheduler: a `serving.scheduler.Scheduler` with nothing to do yet.
        requests: each gets `output_length` tokens; the scheduler learns of its end only then.
            Those with equal prompts are added with one and the same list.
        arrivals: for each request the step before which it is added, in ascending order; by
            default all are there at the start. A step in which there is nothing to do is empty.
        most_steps: where to stop a scheduler that never comes to an end. It ends as well with a
            step that gives a token to a request that has none to get.
    """
    arrivals = [0] * len(requests) if arrivals is None else arrivals
    prompts = {request.prompt: list(request.prompt) for request in requests}
    left = {request.id: request.output_length for request in requests}
    steps: list[Step] = []
    added = 0
    while left and len(steps) < most_steps:
        while added < len(requests) and arrivals[added] <= len(steps):
            request = requests[added]
            scheduler.add(request.id, prompts[request.prompt], request.max_new_tokens)
            added += 1
        step = scheduler.schedule()
        steps.append(step)
        if not step.chunks:
            continue
        sampled = [chunk.request for chunk in step.chunks if chunk.samples]
        if not left.keys() >= set(sampled):
            break
        scheduler.commit({number: made_up_token(number, left[number]) for number in sampled})
        for number in dict.fromkeys(sampled):
            left[number] -= 1
            if left[number] == 0:
                del left[number]
                scheduler.remove(number)
    return steps


def made_up_token(request: int, left: int) -> int:
    """The token that a request gets when it still has to get `left`."""
    return (7919 * request + left) % 50_000
