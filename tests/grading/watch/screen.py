"""The terminal: a whole screen that is redrawn in place and keys, or plain lines."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import termios
from collections.abc import Sequence

from rich.console import Console, Group
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from tests.grading.watch.page import Block, fit, page
from tests.grading.watch.paint import Paint
from tests.grading.watch.problem_page import Advised, blocks
from tests.grading.watch.session import Session
from tests.grading.wording import points

NAMES = {
    "\x03": "q", "\x04": "q", "\x1a": "suspend", "\r": "enter", "\n": "enter", "\x1b": "esc",
    "\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down",
}  # fmt: skip
KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)


def open_screen() -> WholeScreen | PlainLines:
    """What this terminal can do."""
    console = Console(highlight=False, soft_wrap=False)
    plain = console.is_dumb_terminal or not os.environ.get("TERM")
    return PlainLines(console) if plain else WholeScreen(console)


def keys(text: str) -> list[str]:
    """What was pressed: letters as they are, the others by name. Ctrl-C and Ctrl-D are q."""
    return [NAMES.get(key, key.lower()) for key in KEY.findall(text)]


class WholeScreen:
    """The alternate screen; the terminal hands every key on as it is pressed."""

    def __init__(self, console: Console):
        self._console, self._input = console, sys.stdin.fileno()
        self._before: list | None = None  # the terminal's settings; None while it is not ours

    def __enter__(self) -> WholeScreen:
        self.take()
        return self

    def __exit__(self, *error) -> None:
        self.leave()

    def take(self) -> None:
        """Make the terminal ours. Also when it is: someone may have changed it meanwhile."""
        if self._before is None:
            self._before = termios.tcgetattr(self._input)
        ours = [*self._before[:6], list(self._before[6])]
        # ISIG off: Ctrl-C and Ctrl-Z are keys. As signals they would reach make too, which then
        # calls an orderly end an error.
        ours[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
        ours[6][termios.VMIN], ours[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._input, termios.TCSADRAIN, ours)
        self._console.control(Control((ControlType.ERASE_IN_LINE, 2)))  # what starting has said
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)

    def leave(self) -> None:
        """Give the terminal back as it was."""
        if self._before is None:
            return
        before, self._before = self._before, None
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self._input, termios.TCSAFLUSH, before)

    def suspend(self) -> None:
        """Stop as Ctrl-Z asks, with all of the job (make, too), until `fg`."""
        self.leave()
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        self.take()

    def show(self, session: Session, advice: Sequence[Advised], now: float) -> None:
        """Draw over what is there: nothing flickers."""
        columns, rows = os.get_terminal_size(self._input)
        self._console.size = (columns or 80, rows or 24)
        lines = page(session, advice, self._console, now)
        self._console.update_screen(Group(*lines))


class PlainLines:
    """For a terminal that can only print (TERM=dumb): what changed, as it changes.

    It hands keys on by the line: `h` and Enter.
    """

    def __init__(self, console: Console):
        self._console = console
        self._shown: tuple | None = None

    def __enter__(self) -> PlainLines:
        self._console.print("make watch: edit and save; type q and Enter to quit, h for a hint")
        return self

    def __exit__(self, *error) -> None:
        """Nothing to give back."""

    def take(self) -> None:
        """Nothing to take."""

    def suspend(self) -> None:
        """The terminal sends the signal itself."""

    def show(self, session: Session, advice: Sequence[Advised], now: float) -> None:
        """Print the current problem when its result, or the hint, is new."""
        state = (session.current, session.result, session.hint, session.faults)
        if session.result is None or session.busy or state == self._shown:
            return
        self._shown = state
        paint = Paint(self._console)
        parts = [Block(rank, lines) for rank, lines in blocks(session, advice, paint)]
        core = session.total("core")
        total = (
            f"{session.result.at}  {points(core.points)} / {points(core.possible)} points so far"
        )
        for line in (Text(), Text(total, "bold"), Text(), *fit(parts, room=1000)):
            self._console.print(line)
