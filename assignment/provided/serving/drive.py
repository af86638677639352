"""A scheduler at work without a model: requests arrive, get made-up tokens, and finish."""

from collections.abc import Sequence

from assignment.provided.data.traces import Request

from .step import Step


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
        arrivals: for each request the step before which it is added, in ascending order; by
            default all are there at the start. A step in which there is nothing to do is empty.
        most_steps: where to stop a scheduler that never comes to an end.
    """
    arrivals = [0] * len(requests) if arrivals is None else arrivals
    left = {request.id: request.output_length for request in requests}
    steps: list[Step] = []
    added = 0
    while left and len(steps) < most_steps:
        while added < len(requests) and arrivals[added] <= len(steps):
            request = requests[added]
            scheduler.add(request.id, list(request.prompt), request.max_new_tokens)
            added += 1
        step = scheduler.schedule()
        steps.append(step)
        if not step.chunks:
            continue
        sampled = [chunk.request for chunk in step.chunks if chunk.samples]
        scheduler.commit({number: made_up_token(number, left[number]) for number in sampled})
        for number in sampled:
            left[number] -= 1
            if left[number] == 0:
                del left[number]
                scheduler.remove(number)
    return steps


def made_up_token(request: int, left: int) -> int:
    """The token that a request gets when it still has to get `left`."""
    return (7919 * request + left) % 50_000
