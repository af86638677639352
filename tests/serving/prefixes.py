"""Numbers for prefixes of token rows, so that comparing two takes no loop."""

from __future__ import annotations

NOTHING = 0  # no prefix
SHOWN = 8  # tokens of a long one


class Prefixes:
    """Numbers for prefixes: equal ones have the same, and none is NOTHING."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._steps: list[tuple[int, int]] = [(NOTHING, -1)]

    def along(self, tokens: list[int], before: int = NOTHING) -> list[int]:
        """The prefixes that end in each of `tokens`, which come behind the prefix `before`."""
        numbers = []
        for token in tokens:
            step = (before, token)
            if step not in self._numbers:
                self._numbers[step] = len(self._steps)
                self._steps.append(step)
            before = self._numbers[step]
            numbers.append(before)
        return numbers

    def text(self, number: int) -> str:
        """Its last tokens, for a message."""
        tokens: list[str] = []
        while number != NOTHING:
            number, token = self._steps[number]
            tokens.insert(0, str(token))
            if len(tokens) == SHOWN and number != NOTHING:
                tokens[0], number = "…", NOTHING
        return f"[{', '.join(tokens)}]"
