"""Random scripts for a paged cache, and the search for a short one on which it fails.

hypothesis draws rows of small numbers, which are read as calls. They are written before the cache
has answered: what they know of a request is its length, not whether it was refused for want of
blocks. A call on one that was is one more call that has to be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.grading.errors import SubmissionError

__tracebackhide__ = True

KINDS = [
    *("open", "serve", "serve", "append", "step", "step", "commit"),
    *("fork", "branch", "truncate", "revise", "close", "close", "wrong"),
]
ROWS = 36
LONGEST = 12  # tokens of a prompt
REQUESTS = 5  # numbers that are used again and again
UNUSED = 9  # a number that never is


@dataclass(frozen=True)
class Script:
    """A cache's sizes, and calls as ("open", 0, [5, 6, 7])."""

    sizes: tuple[int, int]  # num_blocks, block_size
    calls: list[tuple]


def search(check: Callable[[Script], None], seed: int, examples: int) -> None:
    """Call `check` on random scripts. If one fails, a shorter one is looked for that fails, too.

    A submission that is not written, has died or hangs is not asked again.
    """

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(scripts())
    def trial(script: Script) -> None:
        if error := _failure(check, script):
            raise _Failed(script, error)

    try:
        trial()
    except _Failed as failed:
        raise _shortest(check, failed.script, failed.error) from None


class _Failed(BaseException):
    """Passes through hypothesis, which would catch any Exception."""

    def __init__(self, script: Script, error: Exception):
        super().__init__(str(error))
        self.script, self.error = script, error


def _failure(check: Callable[[Script], None], script: Script) -> Exception | None:
    try:
        check(script)
    except Exception as error:
        return error
    return None


def _shortest(check: Callable[[Script], None], script: Script, error: Exception) -> Exception:
    """What `check` raises for the script after as many calls are left out as can be."""
    calls, step = list(script.calls), len(script.calls)
    while step and not isinstance(error, NotImplementedError | SubmissionError):
        start, shortened = 0, False
        while start < len(calls):
            fewer = calls[:start] + calls[start + step :]
            if found := _failure(check, Script(script.sizes, fewer)):
                calls, error, shortened = fewer, found, True
            else:
                start += step
        step = step // 2 if step > 1 else int(shortened)
    return error


def scripts() -> st.SearchStrategy[Script]:
    small = st.integers(0, 9)
    row = st.tuples(st.sampled_from(KINDS), small, small, st.integers(0, 98))
    sizes = st.tuples(st.integers(1, 20), st.integers(1, 4))
    rows = st.tuples(*[row] * ROWS)
    return st.builds(lambda sizes, rows: Script(sizes, _Author().write(rows)), sizes, rows)


@dataclass
class _Author:
    """Reads rows of numbers as calls: a kind, two numbers, and one that stands for tokens."""

    requests: dict[int, list[int]] = field(default_factory=dict)  # tokens of the open ones
    texts: list[list[int]] = field(default_factory=lambda: [[]])  # all there ever were
    calls: list[tuple] = field(default_factory=list)

    def write(self, rows: tuple[tuple, ...]) -> list[tuple]:
        for kind, a, b, number in rows:
            kind = kind if self.requests or kind in ("serve", "wrong") else "open"
            bits, count = divmod(number, 7)
            getattr(self, f"_{kind}")(a, b, [bits >> i % 4 & 1 for i in range(count)])
        for request in list(self.requests):
            self._close_request(request)
        return self.calls

    def _add(self, name: str, *arguments) -> None:
        self.calls.append((name, *arguments))

    def _unused(self, a: int) -> int:
        free = [number for number in range(REQUESTS) if number not in self.requests]
        return free[a % len(free)] if free else a % REQUESTS

    def _used(self, a: int) -> int:
        return list(self.requests)[a % len(self.requests)] if self.requests else a % REQUESTS

    def _open(self, a: int, b: int, tokens: list[int]) -> int:
        """A new text, or one that goes the way of an earlier one for a while."""
        request, text = self._unused(a), self.texts[-1 - b % len(self.texts)]
        prompt = [*text[: len(text) - a % 4], *tokens][:LONGEST] or [0]
        self._add("open", request, prompt)
        if request not in self.requests:
            self._set(request, list(prompt))
        return request

    def _serve(self, a: int, b: int, tokens: list[int]) -> None:
        self._add("commit", self._open(a, b, tokens))

    def _append(self, a: int, b: int, tokens: list[int]) -> int:
        request = self._used(a)
        self._extend(request, tokens or [b % 2])
        return request

    def _extend(self, request: int, tokens: list[int]) -> None:
        self._add("append", request, tokens)
        if request in self.requests:
            self._set(request, [*self.requests[request], *tokens])

    def _step(self, a: int, b: int, tokens: list[int]) -> None:
        self._add("commit", self._append(a, b, tokens))

    def _commit(self, a: int, b: int, tokens: list[int]) -> None:
        self._add("commit", self._used(a), *([b] if b < 5 else []))

    def _branch(self, a: int, b: int, tokens: list[int]) -> None:
        """Both write where their ways part."""
        request = self._used(a)
        self._add("commit", request)
        new_request = self._fork(a, b, tokens)
        for writer in (new_request, request) if b % 2 else (request, new_request):
            self._extend(writer, tokens or [b % 2])
            self._add("commit", writer)

    def _fork(self, a: int, b: int, tokens: list[int]) -> int:
        request, new_request = self._used(a), self._unused(b)
        self._add("fork", request, new_request)
        if request in self.requests and new_request not in self.requests:
            self._set(new_request, list(self.requests[request]))
        return new_request

    def _truncate(self, a: int, b: int, tokens: list[int]) -> None:
        request = self._used(a)
        text = self.requests.get(request, [])
        self._add("truncate", request, max(len(text) - b, 0))
        if request in self.requests:
            self._set(request, text[: max(len(text) - b, 0)])

    def _revise(self, a: int, b: int, tokens: list[int]) -> None:
        """Other tokens instead of the last few."""
        self._truncate(a, 1 + b % 4, tokens)
        self._step(a, b, tokens)

    def _close(self, a: int, b: int, tokens: list[int]) -> None:
        self._close_request(self._used(a))

    def _close_request(self, request: int) -> None:
        self._add("close", request)
        self.requests.pop(request, None)

    def _wrong(self, a: int, b: int, tokens: list[int]) -> None:
        """A call that makes no sense."""
        used, unused = self._used(a), self._unused(a)
        wrong = [
            ("open", used, tokens or [1]),
            ("open", unused, []),
            ("append", used, []),
            ("append", UNUSED, [1]),
            ("commit", used, 99),
            ("commit", used, -1),
            ("fork", used, used),
            ("fork", UNUSED, unused),
            ("truncate", used, 99),
            ("truncate", used, -1),
        ]
        self._add(*wrong[b])

    def _set(self, request: int, text: list[int]) -> None:
        self.requests[request] = text
        self.texts.append(text)
