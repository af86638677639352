"""The graded suite's pytest plugin: --submission, markers, seeded fixtures, a record a test."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assignment.provided.review import normalised
from tests.grading import submission
from tests.grading.alarm import alarm
from tests.grading.course import Problem, load_course
from tests.grading.draw import Draw, official_seed, test_seed
from tests.grading.errors import GraderError, OutOfTime, SubmissionTimeout, is_unwritten
from tests.grading.recording import PRINTED, record
from tests.grading.records import Figure, Roofline, TestRecord
from tests.grading.reference_costs import reference_bytes, reference_cost
from tests.grading.submitted import read_submitted
from tests.grading.tiers import Tier, describe, tier
from tests.grading.transport import proxy, sides
from tests.grading.transport.finder import ProxyFinder
from tests.grading.transport.forkserver import SECRET, ForkServer

TESTS = Path(__file__).resolve().parents[1]
TIME_LIMIT = 60.0  # seconds a test may wait for the submission: it ends hangs, measures nothing
PROBLEM_LIMIT = 900.0  # seconds for all of a problem's tests; beyond, each may wait the least
LEAST_LIMIT = 2.0  # after a hang the problem's next tests wait half as long, but at least so long

RECORDS = pytest.StashKey[list[TestRecord]]()
SERVER = pytest.StashKey[ForkServer]()  # of an isolated run; the runner may have put its own
SEED = pytest.StashKey[int | None]()  # None: official, the inputs come from the secret
_STUDENT = pytest.StashKey[str | None]()
_COURSE = pytest.StashKey()
_HANGS = pytest.StashKey[Counter]()  # problem: tests that did not finish
_SPENT = pytest.StashKey[Counter]()  # problem: seconds that its tests have taken
_PROBLEM = pytest.StashKey[str]()
_KEEP = pytest.StashKey[bool]()  # the child, for the next test
_FIGURE = pytest.StashKey[Figure]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("grading")
    group.addoption("--submission", help="tree under test: solutions, assignment or a path")
    group.addoption("--seed", type=int, help="seed of the inputs (default: fresh, printed)")
    group.addoption("--student", help="whose answers are graded (default: the file says)")
    group.addoption("--isolated", action="store_true", help="run the submission in child processes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "group(name): the correctness group a graded test is in")
    config.addinivalue_line("markers", "cost(name): a graded test of a cost; calls `budget` once")
    sides.as_in_official_grading(False)
    tree = submission.find_tree(config.getoption("--submission"))
    config.stash[RECORDS] = []
    config.stash[_HANGS], config.stash[_SPENT] = Counter(), Counter()
    config.stash[_COURSE] = load_course(TESTS / "course.toml")
    config.stash[SEED] = _choose_seed(config.getoption("--seed"))
    config.stash[_STUDENT] = _choose_student(config.getoption("--student"))
    if config.getoption("--isolated"):
        if SERVER not in config.stash:
            config.stash[SERVER] = ForkServer()
            config.add_cleanup(config.stash[SERVER].close)
            config.stash[SERVER].take(config.getoption("--submission") or tree)
        submission.install_finder(ProxyFinder())
    else:
        submission.install(tree)


def _choose_seed(asked: int | None) -> int | None:
    if os.environ.get(SECRET) == "":
        raise pytest.UsageError(f"{SECRET} is set, but empty: the inputs would be known to all")
    if asked is None and SECRET not in os.environ:
        return secrets.randbelow(2**32)
    return asked


def _choose_student(asked: str | None) -> str | None:
    try:
        return None if asked is None else normalised(asked)
    except ValueError as error:
        raise pytest.UsageError(f"--student: {error}") from None


def pytest_unconfigure(config: pytest.Config) -> None:
    submission.uninstall()
    for name in [
        n for n, m in sys.modules.items() if _is_graded_file(getattr(m, "__file__", None))
    ]:
        del sys.modules[name]  # they hold names of this run's submission


def pytest_report_header(config: pytest.Config) -> str:
    tree = submission.find_tree(config.getoption("--submission"))
    return f"submission: {submission.short(tree)}, seed: {_tell_seed(config)}"


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if config.get_verbosity() < 0:  # -q leaves the header out, and this must be seen
        terminalreporter.write_line(pytest_report_header(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    problems = config.stash[_COURSE].problems
    for item in items:
        name = problem_of(item.path)
        if name is None:
            continue
        if name not in problems:
            raise pytest.UsageError(f"{item.nodeid}: tests/course.toml has no problem {name!r}")
        if fault := misplaced(problems[name], _marked(item, "group"), _marked(item, "cost")):
            raise pytest.UsageError(f"{item.nodeid}: {fault}")
        item.stash[_PROBLEM] = name


def problem_of(path: Path) -> str | None:
    """The problem a test file grades: tests/<unit>/test_<module>.py, also under tests/hidden/."""
    parts = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else ()
    parts = parts[1:] if parts[:1] == ("hidden",) else parts
    if len(parts) != 2 or parts[0] in ("staff", "grading") or not parts[1].startswith("test_"):
        return None
    return f"{parts[0]}.{Path(parts[1]).stem.removeprefix('test_')}"


def misplaced(problem: Problem, group: str | None, cost: str | None) -> str:
    """What is wrong with a graded test's markers; empty when it has its place in the course."""
    if (group is None) == (cost is None):
        return "needs one marker, @pytest.mark.group(…) or @pytest.mark.cost(…)"
    name, known = (group, problem.groups) if group else (cost, problem.costs)
    if name in known:
        return ""
    return f"tests/course.toml gives {problem.name} no {name!r}, only {', '.join(known) or 'none'}"


def _is_graded_file(file: str | None) -> bool:
    return file is not None and problem_of(Path(file)) is not None


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> Draw:
    """Random inputs of this test: from --seed, or in official grading from the term's secret."""
    seed = request.config.stash[SEED]
    if seed is None:
        seed = official_seed(os.environ[SECRET], request.node.stash.get(_PROBLEM, ""))
    return Draw(test_seed(seed, request.node.nodeid.rpartition("/")[2]))


@pytest.fixture
def submitted_file(request: pytest.FixtureRequest) -> Callable[[], bytes]:
    """Reads the problem's file where that is no module: `submitted_file()` gives its bytes."""
    config = request.config
    target = config.stash[_COURSE].problems[request.node.stash[_PROBLEM]].target
    server = config.stash.get(SERVER, None)
    tree = server.tree if server else submission.find_tree(config.getoption("--submission"))
    shown = submission.short(tree / target)
    return lambda: read_submitted(tree / target, server.as_shown(shown) if server else shown)


@pytest.fixture
def student(request: pytest.FixtureRequest) -> str | None:
    """Whose answers are graded; None where that is the file's to say."""
    return request.config.stash[_STUDENT]


@pytest.fixture
def budget(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a cost with its ideal: `budget(got, ideal, unit="bytes", beside={"uncached": n})`.

    A time in seconds may bring a `Roofline`, which the report draws. `note` is a line on what made
    it dear, for a figure that does not earn all.
    """
    item = request.node
    problem = request.config.stash[_COURSE].problems[item.stash[_PROBLEM]]
    name = _marked(item, "cost")

    def check(
        got, ideal, *, unit="bytes", beside=None, roofline: Roofline | None = None, note: str = ""
    ) -> None:
        if _FIGURE in item.stash:
            raise GraderError(f"{item.nodeid} calls budget twice")
        counted_by = problem.costs[name].counted_by
        reference = reference_cost(item.nodeid, ideal)
        if roofline is not None:
            moved = reference_bytes(item.nodeid, roofline.ideal_bytes)
            roofline = replace(roofline, reference_bytes=moved)
        others = dict(beside or {})
        figure = Figure(name, got, ideal, unit, counted_by, reference, others, roofline, note)
        item.stash[_FIGURE] = figure
        if tier(got, ideal) is not Tier.FULL:
            raise AssertionError(describe(figure))

    return check


@pytest.fixture(autouse=True)
def _as_in_official_grading(request: pytest.FixtureRequest) -> Iterator[None]:
    """A graded test sees the same torch in one process as in a child."""
    sides.as_in_official_grading(_PROBLEM in request.node.stash)
    yield
    sides.as_in_official_grading(False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    server = item.config.stash.get(SERVER, None)
    if server is None:
        return (yield)
    problem = item.stash.get(_PROBLEM, "")
    proxy.begin(server, _limit(item), problem)
    try:
        return (yield)
    finally:
        proxy.end(item.stash.get(_KEEP, False))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """The grader works for a submission, too: in callbacks, and on what it answers."""
    if SERVER not in item.config.stash:
        return (yield)
    with alarm(2 * _limit(item)):
        return (yield)


def _limit(item: pytest.Item) -> float:
    problem = item.stash.get(_PROBLEM, "")
    left = PROBLEM_LIMIT - item.config.stash[_SPENT][problem]
    return max(LEAST_LIMIT, min(TIME_LIMIT / 2 ** item.config.stash[_HANGS][problem], left))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    unwritten = call.excinfo is not None and is_unwritten(call.excinfo.value)
    with _tracebacks(item.config, brief=unwritten):
        report = yield
    if _PROBLEM not in item.stash:
        return report
    if call.when == "call":
        # A child that says "not written" has done no more than one that passes, and gains less.
        item.stash[_KEEP] = report.passed or unwritten
    if call.when == "call" or (report.failed and call.excinfo):
        if printed := proxy.printed():
            report.sections.append((PRINTED, printed))
        if call.excinfo and isinstance(call.excinfo.value, SubmissionTimeout | OutOfTime):
            item.config.stash[_HANGS][item.stash[_PROBLEM]] += 1
        item.config.stash[_SPENT][item.stash[_PROBLEM]] += call.duration
        if report.failed:
            report.sections.append(("read", _where_to_read(item)))
        item.config.stash[RECORDS].append(
            record(
                call,
                report,
                problem=item.stash[_PROBLEM],
                group=_marked(item, "group"),
                cost=_marked(item, "cost"),
                figure=item.stash.get(_FIGURE, None),
                files={p.target: p.name for p in item.config.stash[_COURSE].problems.values()},
            )
        )
    return report


@contextlib.contextmanager
def _tracebacks(config: pytest.Config, *, brief: bool) -> Iterator[None]:
    """What is not written needs no traceback where nobody reads along: it takes pytest longer than
    the test did."""
    brief = brief and not hasattr(config.option, "tbstyle")  # an option of the terminal's
    if brief:
        config.option.tbstyle = "line"
    yield
    if brief:
        del config.option.tbstyle


def _where_to_read(item: pytest.Item) -> str:
    problem = item.config.stash[_COURSE].problems[item.stash[_PROBLEM]]
    seed = _tell_seed(item.config)
    return f"handout, section “{problem.handout}”; same inputs again with --seed {seed}"


def _tell_seed(config: pytest.Config) -> str:
    seed = config.stash[SEED]
    return "the term's" if seed is None else str(seed)


def _marked(item: pytest.Item, marker: str) -> str | None:
    found = item.get_closest_marker(marker)
    return found.args[0] if found else None
