"""The loop: keys, saves, signals and the worker's news go to the session, the session on screen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from watchfiles import awatch

from tests.grading.watch.advise import advise
from tests.grading.watch.background import Background
from tests.grading.watch.changes import counts, touched
from tests.grading.watch.screen import PlainLines, WholeScreen, keys
from tests.grading.watch.session import Session, new_seed
from tests.grading.wording import one_line

QUIET = 100  # milliseconds without a change before a save counts: editors write several times
LONGEST = 1000  # milliseconds: even if the changes go on, they count then
LOOK_AGAIN = 2000  # milliseconds between looks whether the folder is still the same
DRAW_AGAIN = 0.03  # seconds: what happens within is drawn once
TICK = 0.5  # seconds between drawings while something runs
PATIENCE = 10.0  # seconds for a cancelled job to end before its worker is ended
ENDS = {signal.SIGINT: 0, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGHUP: 128 + signal.SIGHUP}


class App:
    """One sitting in front of a terminal."""

    def __init__(self, session: Session, screen: WholeScreen | PlainLines, tree: Path):
        self._session, self._screen, self._tree = session, screen, tree
        self._answers = {file: p.name for file, p in session.course.answers.items()}
        self._ready = False
        self._drawing: asyncio.TimerHandle | None = None
        self._cancelled_at = 0.0
        self._deaths = 0  # of workers, since the last result

    async def run(self) -> int:
        """Watch until the student quits; the exit status."""
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[int] = self._loop.create_future()
        self._loop.set_exception_handler(self._failed)
        for number, status in ENDS.items():
            self._loop.add_signal_handler(number, self._quit, status)
        stop = asyncio.Event()
        self._hire()
        try:
            with self._screen:
                self._loop.add_signal_handler(signal.SIGWINCH, self._draw)
                self._loop.add_signal_handler(signal.SIGCONT, self._resumed)
                self._loop.add_reader(sys.stdin.fileno(), self._on_keys)
                watching = asyncio.create_task(self._watch(stop))
                ticking = asyncio.create_task(self._tick())
                for task in (watching, ticking):
                    task.add_done_callback(self._task_ended)
                self._draw()
                status = await self._end
                self._loop.remove_reader(sys.stdin.fileno())
        finally:
            self._loop.remove_reader(self._background.fileno())
            self._background.close()
            stop.set()
        ticking.cancel()
        await watching
        return status

    def _quit(self, status: int = 0) -> None:
        if not self._end.done():
            self._end.set_result(status)

    def _task_ended(self, task: asyncio.Task) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._failed(self._loop, {"exception": error})

    def _failed(self, _, context: dict) -> None:
        """A fault of ours ends it: the terminal is given back first, then the traceback shown."""
        error = context.get("exception") or RuntimeError(context["message"])
        if isinstance(error, OSError) and not _has_terminal():
            self._quit(ENDS[signal.SIGHUP])
        elif not self._end.done():
            self._end.set_exception(error)

    # The student's side.

    def _on_keys(self) -> None:
        try:
            text = os.read(sys.stdin.fileno(), 4096).decode(errors="ignore")
        except OSError:  # the terminal is gone
            text = ""
        if not text:
            self._quit()
        for key in keys(text):
            if key == "q":
                self._quit()
            elif key == "suspend":
                self._screen.suspend()
            elif key == "r":
                self._session.renew(new_seed())
            else:
                self._session.press(key)
        self._go_on()

    def _resumed(self) -> None:
        self._screen.take()
        self._draw()

    async def _watch(self, stop: asyncio.Event) -> None:
        polling = None  # as watchfiles thinks best
        while not stop.is_set():
            try:
                await self._watch_this_folder(stop, polling)
            except OSError:
                if polling:
                    raise
                polling = True  # a machine has only so many watches, and many users

    async def _watch_this_folder(self, stop: asyncio.Event, polling: bool | None) -> None:
        """Until it is another: a checkout may remove the folder and make it anew."""
        while (folder := _identity(self._tree)) is None:
            if stop.is_set():
                return
            await asyncio.sleep(TICK)
        saves = awatch(
            self._tree,
            watch_filter=lambda _, path: counts(Path(path), self._tree, self._answers),
            step=QUIET,
            debounce=LONGEST,
            stop_event=stop,
            rust_timeout=LOOK_AGAIN,
            yield_on_timeout=True,
            force_polling=polling,
        )
        async with contextlib.aclosing(saves):
            async for changes in saves:
                if changes:
                    self._saved({Path(path) for _, path in changes})
                if _identity(self._tree) != folder:
                    break
        self._session.save(self._session.order)
        self._go_on()

    def _saved(self, paths: set[Path]) -> None:
        session = self._session
        session.save(touched(paths, self._tree, session.order, session.current, self._answers))
        self._go_on()

    # The worker's side.

    def _hire(self) -> None:
        self._ready = False
        self._background = Background(self._session.submission)
        self._loop.add_reader(self._background.fileno(), self._on_news)

    def _on_news(self) -> None:
        try:
            kind, *rest = self._background.receive()
        except (EOFError, OSError):
            self._replace("the grading process died: " + self._background.last_words())
            return
        now = time.monotonic()
        if kind == "ready":
            self._ready = True
        elif kind == "tests":
            self._session.hear(now, tests=rest[0])
        elif kind == "test":
            self._session.hear(now)
        elif kind == "report" and rest[0]:
            self._deaths = 0
            self._session.finish(rest[0], time.strftime("%H:%M:%S"))
        else:
            self._session.give_up(one_line(rest[0], 500) if kind == "fault" else "")
        self._go_on()

    def _replace(self, fault: str = "") -> None:
        """A new worker; at the second death in a row it waits for the next save."""
        self._loop.remove_reader(self._background.fileno())
        self._background.close()
        self._deaths += bool(fault)
        self._session.give_up(fault if self._deaths > 1 else "")
        self._hire()
        self._go_on()

    # Both.

    def _go_on(self) -> None:
        """Whatever has happened: cancel, start and draw what follows from it."""
        session = self._session
        if self._end.done():
            return
        if session.overtaken:
            session.job.cancelled = True
            self._cancelled_at = time.monotonic()
            self._background.cancel()
        if self._ready and session.job is None and (job := session.start(time.monotonic())):
            self._background.run(job.problems, session.seed)
        if self._drawing is None:
            self._drawing = self._loop.call_later(DRAW_AGAIN, self._draw)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            job = self._session.job
            if job and job.cancelled and time.monotonic() - self._cancelled_at > PATIENCE:
                self._replace()
            elif job or not self._ready:
                self._draw()

    def _draw(self) -> None:
        if self._drawing:
            self._drawing.cancel()
            self._drawing = None
        if not self._end.done():
            advice = advise(self._session, self._source())
            self._screen.show(self._session, advice, time.monotonic())

    def _source(self) -> str | None:
        problem = self._session.problem
        return read(self._tree / problem.target) if problem and self._session.hint else None


def read(file: Path) -> str | None:
    """A problem's file; None where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _has_terminal() -> bool:
    try:
        return bool(os.tcgetpgrp(sys.stdin.fileno()))
    except OSError:
        return False
