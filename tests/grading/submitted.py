"""A handed-in file that is no module, read as data: nothing of it is ever run."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from tests.grading.errors import SubmissionError
from tests.grading.intake.entries import megabytes
from tests.grading.intake.limits import LARGEST_ANSWERS

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # waits for nothing


def read_submitted(file: Path, shown: str) -> bytes:
    """The bytes of a plain file.

    Args:
        file: in the tree under test; anything may be there.
        shown: what its author calls it.
    Raises:
        SubmissionError: it is missing, no plain file, or larger than a file of answers may be.
    """
    try:
        number = os.open(file, FLAGS)
    except FileNotFoundError:
        raise SubmissionError(f"no file {shown}") from None
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        why = "it is a symbolic link" if is_link else os.strerror(error.errno)
        raise SubmissionError(f"{shown} cannot be read: {why}") from None
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise SubmissionError(f"{shown} is no plain file")
        data = os.read(number, LARGEST_ANSWERS + 1)
    finally:
        os.close(number)
    if len(data) > LARGEST_ANSWERS:
        raise SubmissionError(f"{shown} is larger than {megabytes(LARGEST_ANSWERS)}")
    return data
