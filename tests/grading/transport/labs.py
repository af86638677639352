"""The grader's end of the child that runs kernels: there is no submission in it."""

from __future__ import annotations

import time

from tests.grading.transport import proxy
from tests.grading.transport.forkserver import ForkServer

__tracebackhide__ = True


def lab() -> proxy.Session:
    """The one of the current test."""
    session = proxy.current()
    session.lab = session.lab or Lab(session.server, session.time_limit, session.module)
    return session.lab


class Lab(proxy.Session):
    """A conversation with that child. As long as nothing goes wrong, the module's later tests have
    the same."""

    who = "a kernel"

    def __init__(self, server: ForkServer, time_limit: float, module: str):
        super().__init__(server, time_limit, module)
        self._is_clean = True

    def request(self, do: str, arguments: dict) -> object:
        was_clean, self._is_clean = self._is_clean, False
        outcome = super().request(do, arguments)
        self._is_clean = was_clean
        return outcome

    def close(self, keep: bool) -> None:
        """What it ran was nobody's own program: it is kept, too, where the submission's is not."""
        if self._child and self._is_clean:
            self.server.give_back_lab(self._child, self.module)
        else:
            super().close(keep=False)

    def _connect(self) -> None:
        if self._child is None:
            self._use(self.server.lab(self.module))
            if self._child.used and not self._is_ready():
                self.server.end(self._child)
                self._use(self.server.lab(self.module))
            if not self._child.used:
                self._wait_for_walls()
        self._deadline = time.monotonic() + self.time_limit
