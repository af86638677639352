"""The file that answers go into: empty at first, never written over."""

from pathlib import Path

from .questions import questions

FILE = Path(__file__).resolve().parents[2] / "review.toml"  # assignment/review.toml
HEAD = """\
# Your answers to the ten questions. `make review STUDENT=your-id` prints the questions with your
# numbers. Write an answer as a number, or in quotes with its unit: 0.4, "400 ms", "800 KiB",
# "56.9x", "60 %", "4/7", [1, 2, 3], "compute". Without a unit it is in the one beside it.
# Do not round on the way; three digits of the result are enough, unless the sheet says exact.
# A question counts when all its answers are right.

student = ""
"""


def template() -> str:
    """The answers file with no answer in it; the same for every student."""
    return HEAD + "".join(map(_table, questions("anyone")))


def _table(question) -> str:
    width = max(len(ask.key) for ask in question.asks)
    lines = [f'{ask.key:{width}} = ""  # {ask.unit}' for ask in question.asks]
    return "\n".join(["", f"[{question.name}]  # {question.title}", *lines, ""])


def keep(student: str, file: Path = FILE) -> bool:
    """Make the file where there is none, and put the id in where none is; whether it did either.

    Nothing else in it is touched.
    """
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(template().replace('student = ""', f'student = "{student}"', 1))
        return True
    except FileExistsError:
        pass
    text = file.read_bytes()
    empty = b'\nstudent = ""'
    if text.count(empty) != 1:
        return False
    file.write_bytes(text.replace(empty, f'\nstudent = "{student}"'.encode()))
    return True
