"""`make watch`: the page as text, in windows of every size, and the keys."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tests.grading.course import Course
from tests.grading.records import Finding, Place, TestRecord
from tests.grading.report import Run
from tests.grading.scoring import score
from tests.grading.watch.advise import advise
from tests.grading.watch.page import Block, fit, page
from tests.grading.watch.plan import in_order
from tests.grading.watch.screen import PlainLines, keys
from tests.grading.watch.session import Session
from tests.staff.samples import COURSE, figure, perfect_run, record, small_course, with_

CACHE, MASK, PRUNING = "attention.cache", "attention.mask", "extras.pruning"
SIZES = [(80, 24), (60, 20), (200, 60), (40, 12), (20, 5), (1, 1)]
SOURCE = """
def append(x):
    '''Put x behind.

    Hint: count first. About 6 lines.
    '''
    raise NotImplementedError
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Course:
    return small_course(tmp_path_factory.mktemp("course"))


def session_with(course: Course, records: list[TestRecord], *, notes=(), faults=()) -> Session:
    """A sitting in front of the cache, with everything counted."""
    session = Session(course, in_order(course), seed=7, current=CACHE)
    while job := session.start(now=100.0):
        tests = [r for r in records if r.problem in job.problems]
        run = Run(seed=7, seconds=0.84, options="--submission x", notes=notes)
        report = score(course, tests, run, problems=job.problems, faults=faults)
        session.finish(report, "21:04:13")
    return session


def failing(part="append", message="got 3", problem=CACHE, finding=None, **more):
    test = replace(record(problem, part, "failed", message, **more), finding=finding)
    return with_(perfect_run(), test)


def lines(session: Session, width=80, height=24, now=100.0, source=SOURCE, encoding="utf-8"):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, height=height)
    return [line.plain.rstrip() for line in page(session, advise(session, source), console, now)]


def text(session: Session, **more) -> str:
    return "\n".join(lines(session, **more))


def everything(course) -> Session:
    """A sitting with a long line in every place."""
    words = "first differs at batch 1, head 2, token 3: expected 0.25, got 0.75, " * 20
    long = failing(message=words + "\x1b[2J\u202e", details="x" * 5000)
    notes = ("attention/" + "a" * 300 + ".py: left out",)
    too_much = record(CACHE, "bytes", "failed", measured=figure(142))
    session = session_with(course, with_(long, too_much), notes=notes)
    session.hint = 1
    return session


# What is on it.


def test_the_page_shows_the_problem_its_parts_and_the_first_failure(course):
    shown = text(session_with(course, failing(message="lengths: expected 4, got 3")))
    for part in (
        "A small course", "3 / 7 points", "A cache", "0 / 4", "assignment/attention/cache.py",
        "Attention · problem 1 of 2", "handout attention, “The KV cache”",
        "✗ append   ✓ ragged   ✓ rollback", "✓ bytes 1.04× the ideal   reference 1.00×",
        "nothing counts until append passes",
        "✗ test_append[0]", "lengths: expected 4, got 3", "ran at 21:04:13 in 0.8 s · seed 7",
    ):  # fmt: skip
        assert part in shown, part


def test_a_finding_is_taken_apart(course):
    finding = Finding(
        "keys", "row 1", "0.25", "0.75", "2 of 3 are off", Place("attention/cache.py", 42, "append")
    )
    shown = lines(session_with(course, failing(finding=finding)))
    at = shown.index("  keys, row 1")
    assert [line.split() for line in shown[at + 1 : at + 3]] == [
        ["expected", "0.25"],
        ["got", "0.75"],
    ]
    assert "  attention/cache.py, line 42, in append" in shown


def test_what_is_written_and_wrong_comes_before_what_is_not_written(course):
    unwritten = failing(message="append is not written yet", unwritten=True)
    assert "append is not written yet" in text(session_with(course, unwritten))
    both = with_(unwritten, record(CACHE, "rollback", "failed", "got 5"))
    assert "got 5" in text(session_with(course, both))


def test_a_reason_that_broke_every_test_stands_alone(course):
    every = [
        replace(r, outcome="failed", message="cache.py, line 3: SyntaxError") for r in perfect_run()
    ]
    shown = text(session_with(course, every))
    assert "✗ cache.py, line 3: SyntaxError" in shown and "append" not in shown


def test_a_solved_problem_says_so_and_stays(course):
    session = session_with(course, failing("causal", problem=MASK))
    assert session.current == CACHE
    assert "✓ Solved: all 4 points\nPress n for the next: A mask" in text(session)
    assert "Every problem is full" in text(session_with(course, perfect_run()))


def test_a_cost_that_is_too_high_is_shown_with_what_it_earns(course):
    too_much = failing("bytes", "bytes: 142 bytes, 1.42× the ideal of 100", measured=figure(142))
    shown = text(session_with(course, too_much))
    assert "~ bytes 1.42× the ideal, two thirds" in shown and "142 bytes" in shown


def test_faults_of_the_grader_and_notes_are_told(course):
    session = session_with(course, perfect_run(), notes=("a.py: left out",), faults=("no torch",))
    shown = text(session)
    assert "The grader's own fault, not yours" in shown and "no torch" in shown
    assert "a.py: left out" in shown


def test_while_tests_run_it_says_how_far_and_when_the_code_is_silent(course):
    session = session_with(course, perfect_run())
    session.save({CACHE})
    assert "starting" in text(session)
    session.start(now=100.0)
    session.hear(100.5, tests=4)
    session.hear(101.0)
    assert "running" in text(session, now=102.0) and "1 of 4 tests" in text(session, now=102.0)
    assert "waiting for your code… 20 s" in text(session, now=121.0)


# Keys.


def test_the_hint_comes_in_two_steps_and_goes(course):
    session = session_with(course, failing())
    session.press("h")
    assert "Count first. About 6 lines." in text(session)
    session.press("h")
    shown = text(session)
    assert "Count first" not in shown and "handout/handout.pdf, attention, “The KV cache”" in shown
    command = " ".join(shown.replace("\\\n", " ").split())
    assert ".venv/bin/pytest tests/attention/test_cache.py::test_append" in command
    assert "--submission x --seed 7 --pdb" in command
    session.press("h")
    assert "handout/handout.pdf" not in text(session)


def test_a_hint_on_a_file_that_does_not_load_names_the_line(course):
    session = session_with(course, failing())
    session.press("h")
    assert "see line 2 first" in text(session, source="x = 1\ndef f(:\n")
    assert "Hint" in text(session, source=None)


def test_a_solved_problem_needs_no_hint(course):
    session = session_with(course, failing())
    session.press("h")
    session.save({CACHE})
    session.start(now=0.0)
    session.finish(score(course, perfect_run(), Run(seed=7), problems=[CACHE]), "21:05:00")
    assert session.hint == 0


def test_next_and_previous_skip_what_is_full(course):
    session = session_with(course, failing("masks", problem=PRUNING))
    session.press("n")
    assert session.current == PRUNING
    session.press("p")
    assert session.current == MASK  # no other is open: the nearest


def test_the_list_goes_to_any_problem(course):
    session = session_with(course, failing())
    session.press("l")
    chosen = [line.split() for line in lines(session) if line.startswith(">")]
    assert chosen == [[">", "A", "cache", "0", "/", "4", "failing"]]
    session.press("down")
    session.press("enter")
    assert session.current == MASK and not session.listing
    session.press("l")
    session.press("l")
    assert session.current == MASK and not session.listing


def test_a_long_list_scrolls_to_the_cursor(tmp_path):
    more = (
        f'[problems."extras.p{i}"]\ntitle = "Number {i}"\ntrack = "core"\npoints = 1\n'
        'handout = "H"\ngroups = { a = 1 }\n'
        for i in range(40)
    )
    course = small_course(tmp_path, COURSE + "\n".join(more))
    session = Session(course, in_order(course), seed=7, current="extras.p39")
    session.press("l")
    shown = lines(session)
    assert any(line.startswith("> Number 39") for line in shown) and len(shown) == 24
    session.press("down")  # round to the first
    assert any(line.startswith("> A cache") for line in lines(session))


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("hN", ["h", "n"]), ("\x03", ["q"]), ("\x04", ["q"]), ("\x1a", ["suspend"]),
        ("\x1b[A\x1b[B", ["up", "down"]), ("\x1bOA", ["up"]), ("\x1b", ["esc"]), ("\r", ["enter"]),
        ("\x1b[1;5Cq", ["\x1b[1;5c", "q"]), ("\x1b[200~", ["\x1b[200~"]),
    ],
)  # fmt: skip
def test_keys_have_names(typed, expected):
    assert keys(typed) == expected


# Whatever the window.


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("listing", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_page_fits_the_window(course, width, height, listing, encoding):
    session = everything(course)
    session.listing, session.cursor = listing, CACHE
    shown = lines(session, width=width, height=height, encoding=encoding)
    assert len(shown) == height
    assert max(map(cell_len, shown)) <= width
    assert "\x1b" not in "".join(shown) and "\u202e" not in "".join(shown)
    assert "".join(shown).encode(encoding)


def test_blank_lines_go_first_and_then_what_matters_least():
    def shown(room):
        blocks = [Block(9, [Text("a")]), Block(1, [Text("b"), Text("c")]), Block(5, [Text("d")])]
        return [line.plain for line in fit(blocks, room)]

    assert shown(6) == ["a", "", "b", "c", "", "d"]
    assert shown(5) == ["a", "b", "c", "", "d"]
    assert shown(4) == ["a", "b", "c", "d"]
    assert shown(3) == ["a", "b", "d"]
    assert shown(2) == ["a", "d"]
    assert shown(1) == ["a"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (200, 60)])
def test_what_matters_is_there_in_a_small_window(course, width, height):
    shown = text(everything(course), width=width, height=height)
    for part in ("A cache", "test_append", "first differs at batch 1", "Count first.", "q quit"):
        assert part in shown, part


def test_a_terminal_with_no_more_than_ascii_sees_marks(course):
    shown = text(session_with(course, failing()), encoding="ascii")
    assert "x append   + ragged   + rollback" in shown and "?" not in shown


def test_before_the_first_result_all_problems_are_listed(course):
    session = Session(course, in_order(course), seed=7)
    for key in "nplh":
        session.press(key)
    shown = text(session)
    assert "A cache" in shown and "Pruning" in shown and "q quit" in shown


def test_a_dumb_terminal_gets_a_block_for_each_new_result(course):
    file = io.StringIO()
    screen = PlainLines(Console(file=file, width=80))
    session = session_with(course, failing())
    for _ in range(3):
        screen.show(session, [], now=0.0)
    assert file.getvalue().count("test_append[0]") == 1
    session.press("h")
    screen.show(session, advise(session, SOURCE), now=0.0)
    assert "Count first." in file.getvalue() and "\x1b" not in file.getvalue()
