"""`make grade`: run the graded suite on a submission, show the points, write the two reports.

Exit status: 0 whatever the points, 3 when the grader itself was at fault, 2 for a wrong call,
130 when interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from assignment.provided.review import normalised
from tests.grading.submission import locate
from tests.grading.transport.forkserver import ForkServer
from tests.grading.walls import limits
from tests.grading.walls.kernel import hide_from_other_processes

WRONG_CALL = 2
INTERRUPTED = 130  # as shells have it


def main() -> int:
    clock = time.monotonic()
    options = _parse()
    if not locate(options.submission).exists():
        print(f"--submission: there is no {options.submission}", file=sys.stderr)
        return WRONG_CALL
    hide_from_other_processes()
    try:
        server = ForkServer()
        # Torch's optimizers make a folder for a compiler that is not used: it goes with this one.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(server.folder / "torchinductor")
        limits.limit_the_grader()
        from tests.grading.grade import grade  # slow: torch. The server's process imports it, too

        return grade(options, server, clock)
    except KeyboardInterrupt:
        print("interrupted: nothing was graded", file=sys.stderr)
        return INTERRUPTED


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.grading", description=__doc__)
    parser.add_argument(
        "--submission", default="assignment", help="solutions, assignment or a path"
    )
    parser.add_argument("--unit", help="grade this unit only, such as attention")
    parser.add_argument(
        "--problem", action="append", help="grade these only, such as attention.kv_cache"
    )
    parser.add_argument(
        "--student", type=_student, help="id of the student, for numbers of their own"
    )
    parser.add_argument("--seed", type=int, help="seed of the inputs (default: fresh)")
    parser.add_argument("--output", type=Path, default=Path("build/grade"), help="for the reports")
    return parser.parse_args()


def _student(text: str) -> str:
    try:
        return normalised(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
