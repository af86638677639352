"""`make watch`: what comes next, what a save touches, hints. Pure functions, no terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.grading.course import Course, load_course
from tests.grading.records import TestRecord
from tests.grading.report import Report, Run
from tests.grading.scoring import score
from tests.grading.submission import REPOSITORY
from tests.grading.watch.changes import counts, touched
from tests.grading.watch.hints import advice, fitting, has_stub
from tests.grading.watch.plan import in_order, neighbour
from tests.grading.watch.session import Session, first_failure
from tests.staff.samples import perfect_run, record, small_course, with_

CACHE, MASK, PRUNING = "attention.cache", "attention.mask", "extras.pruning"


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Course:
    return small_course(tmp_path_factory.mktemp("course"))


def session_of(course: Course, **more) -> Session:
    return Session(course, in_order(course), seed=7, **more)


def report_on(course: Course, *problems: str, records: list[TestRecord] | None = None) -> Report:
    """What a run of these problems comes to; perfect without records."""
    records = [r for r in records or perfect_run() if r.problem in problems]
    return score(
        course, records, Run(seed=7, seconds=0.8, options="--submission x"), problems=problems
    )


def run(session: Session, records: list[TestRecord] | None = None) -> tuple[str, ...]:
    """One job from beginning to end; what it ran."""
    job = session.start(now=0.0)
    if job is None:
        return ()
    session.finish(report_on(session.course, *job.problems, records=records), "21:04:13")
    return job.problems


def broken(problem: str = CACHE, part: str = "append", **more) -> list[TestRecord]:
    return with_(perfect_run(), record(problem, part, "failed", **more))


# Which problem, and which tests next.


def test_the_core_track_comes_first_and_a_unit_may(course):
    assert in_order(course) == (CACHE, MASK, PRUNING)
    assert in_order(course, "extras") == (PRUNING, CACHE, MASK)


def test_it_starts_with_the_first_problem_that_is_not_full(course):
    session = session_of(course, has_stub=lambda name: name == PRUNING)
    assert run(session, broken(MASK, "causal")) == (CACHE, MASK, PRUNING)  # MASK may be full
    assert session.current == MASK


def test_the_search_ends_at_the_first_stub_and_the_rest_is_counted_later(course):
    session = session_of(course, has_stub=lambda name: name in (CACHE, MASK))
    assert run(session, broken()) == (CACHE,)
    assert session.current == CACHE
    assert [run(session), run(session), run(session)] == [(MASK,), (PRUNING,), ()]
    assert session.total("core").points == 3


def test_the_search_goes_on_where_a_file_with_a_stub_is_full(course):
    session = session_of(course, has_stub=lambda name: name == CACHE)
    run(session)
    assert session.current is None
    run(session)
    assert session.current == CACHE  # nothing is open: the first


@pytest.mark.parametrize(
    ("full", "step", "expected"),
    [
        ((), 1, "c"), ((), -1, "a"), (("c",), 1, "d"), (("c", "d"), 1, "a"),
        (("b",), 1, "c"), (("a", "c", "d"), 1, "c"), (("a", "c", "d"), -1, "a"),
    ],
)  # fmt: skip
def test_the_keys_go_round_the_problems_with_points_left(full, step, expected):
    assert neighbour("abcd", "b", full, step) == expected


def test_a_course_of_one_problem_goes_round_to_itself():
    assert neighbour("a", "a", (), 1) == "a"


# A save.


def test_a_save_runs_the_current_problem_before_the_others(course):
    session = session_of(course, current=MASK)
    assert [run(session) for _ in range(4)] == [(MASK,), (CACHE,), (PRUNING,), ()]
    session.save({CACHE, MASK})
    assert [run(session) for _ in range(3)] == [(MASK,), (CACHE,), ()]


def test_a_save_ends_the_run_that_it_makes_useless(course):
    session = session_of(course, current=CACHE)
    session.start(now=0.0)
    assert not session.overtaken
    session.save({PRUNING})
    assert not session.overtaken  # it waits its turn
    session.save({CACHE})
    assert session.overtaken and session.busy
    session.job.cancelled = True
    assert not session.overtaken  # once is enough
    session.give_up()
    assert session.start(now=1.0).problems == (CACHE,)


def test_a_run_for_the_count_makes_way_for_the_current_problem(course):
    session = session_of(course, current=CACHE)
    run(session)
    assert session.start(now=0.0).problems == (MASK,)
    session.save({CACHE})
    assert session.overtaken
    session.give_up()
    assert [run(session), run(session)] == [(CACHE,), (MASK,)]


def test_a_result_that_a_save_has_overtaken_is_never_shown(course):
    session = session_of(course, current=CACHE)
    job = session.start(now=0.0)
    session.save({CACHE})
    session.finish(report_on(course, *job.problems), "21:04:13")  # it came before it was cancelled
    assert session.result is None and session.busy
    run(session, broken())
    assert session.result.score.status == "failing" and not session.busy


def test_a_fault_of_the_grader_waits_for_the_next_save(course):
    session = session_of(course, current=CACHE)
    session.stale = {CACHE}
    session.start(now=0.0)
    session.give_up("RuntimeError: no")
    assert session.start(now=0.0) is None and session.faults
    session.save({CACHE})
    run(session)
    assert session.result and not session.faults


@pytest.fixture
def tree(tmp_path) -> Path:
    for name, text in {
        "attention/__init__.py": "",
        "attention/cache.py": "from . import shared\n",
        "attention/mask.py": "from .inner import thing\n",
        "attention/inner.py": "from assignment.attention.shared import thing\n",
        "attention/shared.py": "import torch\n",
        "attention/spare.py": "",
        "extras/pruning.py": "from ..attention.mask import thing\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ("attention/cache.py", {CACHE}),
        ("attention/mask.py", {MASK, PRUNING}),
        ("attention/inner.py", {MASK, PRUNING}),
        ("attention/shared.py", {CACHE, MASK, PRUNING}),
        ("attention/__init__.py", {CACHE, MASK, PRUNING}),  # PRUNING imports from the package
        ("attention/spare.py", {CACHE}),  # nobody's: the current problem
        ("attention", {CACHE, MASK, PRUNING}),  # a folder that was moved away
        (".", {CACHE, MASK, PRUNING}),  # the submission's own folder
        ("notes", set()),
    ],
)
def test_a_save_touches_what_imports_the_file(tree, saved, expected):
    assert touched([tree / saved], tree, (CACHE, MASK, PRUNING), CACHE) == expected


@pytest.mark.parametrize(
    ("saved", "expected"),
    [("review.toml", {MASK}), ("attention/mask.py", {MASK, PRUNING}), ("other.toml", set())],
)
def test_a_save_of_answers_touches_their_problem(tree, saved, expected):
    answers = {"review.toml": MASK}
    assert touched([tree / saved], tree, (CACHE, MASK, PRUNING), CACHE, answers) == expected


def test_a_file_that_is_gone_or_broken_still_touches_its_problem(tree):
    (tree / "attention/cache.py").unlink()
    (tree / "attention/mask.py").write_text("def f(:\n")
    files = [tree / "attention/cache.py", tree / "attention/mask.py"]
    assert touched(files, tree, (CACHE, MASK, PRUNING), None) == {CACHE, MASK, PRUNING}


def test_only_python_files_of_the_submission_count(tree):
    yes = ["attention/cache.py", "attention/new.py", "attention", "."]
    no = [
        "provided/models/llama.py", "attention/__pycache__/cache.cpython-311.pyc", "notes.txt",
        "attention/.#cache.py", "attention/.cache.py.swp", "attention/cache.py~", "attention/4913",
        ".git/index", "attention/.ipynb_checkpoints/cache.py",
    ]  # fmt: skip
    assert [name for name in [*yes, *no] if counts(tree / name, tree)] == yes
    assert not counts(tree.parent / "cache.py", tree)
    names = ["review.toml", "attention/review.toml", "pyproject.toml", ".review.toml", "cache.py"]
    counted = [name for name in names if counts(tree / name, tree, {"review.toml"})]
    assert counted == ["review.toml", "cache.py"]


# Hints.

SOURCE = '''
class Cache:
    """Keeps things.

    Size of a good answer: about 30 lines in all.
    """

    def __init__(self):
        """Empty.

        Hint: start with
        zeros.

        More words.
        """
        raise NotImplementedError

    def append(self, x):
        """Put x behind.

        Hint: count first. About 6 lines.
        """

    def lengths(self):
        """How many."""


def mask(n):
    """Which keys. Hint: compare by
    broadcasting. 2–3 lines.
    """
'''
HINTS = {
    "Cache": "No hint here, but the size of an answer: about 30 lines in all.",
    "Cache.__init__": "Start with zeros.",
    "Cache.append": "Count first. About 6 lines.",
    "Cache.lengths": "",
    "mask": "Compare by broadcasting. 2–3 lines.",
}


def failure_of(course: Course, **more):
    return first_failure(report_on(course, CACHE, records=broken(**more)).problems[0])


def names(found) -> list[str]:
    return [one.function for one in found]


def test_hints_and_sizes_come_from_the_docstrings():
    assert {one.function: one.text for one in advice(SOURCE)} == HINTS
    with pytest.raises(SyntaxError):
        advice("def f(:\n")
    with pytest.raises(SyntaxError):
        advice("x = 1\0")


@pytest.mark.parametrize(
    ("message", "details", "expected"),
    [
        ("Cache.append is not written yet", "", ["Cache.append"]),
        ("attention.cache: Cache.__init__ is not written yet", "", ["Cache.__init__"]),
        ("got 3", "    def test_it(self):\n>       mask(3)\n_ _ _ _ _\nappend", ["mask"]),
        ("append: got 3", "", ["Cache.append"]),
        ("got 3", "", ["Cache", "Cache.__init__", "Cache.append", "mask"]),
    ],
)
def test_a_hint_fits_what_fails(course, message, details, expected):
    failure = failure_of(course, message=message, details=details)
    assert names(fitting(advice(SOURCE), failure)) == expected


def test_a_hint_is_on_the_function_that_was_at_work(course):
    failure = failure_of(course, message="mask: got 3")
    assert names(fitting(advice(SOURCE), failure, "append")) == ["Cache.append"]


def test_every_stub_of_the_course_gives_its_file_a_hint():
    problems = load_course(REPOSITORY / "tests" / "course.toml").problems.values()
    for problem in (each for each in problems if not each.file):
        file = REPOSITORY / "assignment" / problem.target
        source = file.read_text(encoding="utf-8")
        assert has_stub(source)
        assert any(one.text for one in advice(source)), f"{file} has no hint"


def test_a_stub_is_one_that_still_raises():
    assert has_stub("def f():\n    raise NotImplementedError\n")
    assert not has_stub('def f():\n    """raise NotImplementedError"""\n    return 1\n')
