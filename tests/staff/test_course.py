"""tests/course.toml, and what the loader says about a file that is wrong."""

from __future__ import annotations

import datetime
from fractions import Fraction
from pathlib import Path

import pytest

from tests.grading.course import CourseError, load_course
from tests.staff.samples import COURSE, small_course

MASK = 'handout = "Masks"\n'
COURSE_FILE = Path(__file__).parents[1] / "course.toml"


def test_the_course_of_this_repository_loads():
    course = load_course(COURSE_FILE)
    assert course.problems
    assert {problem.unit for problem in course.problems.values()} <= set(course.units)


def test_everything_in_the_file_is_read(tmp_path):
    course = small_course(tmp_path)
    assert course.title == "A small course"
    assert list(course.units) == ["attention", "extras"]
    assert course.units["attention"].due == datetime.date(2027, 2, 12)
    assert course.units["extras"].due is None
    assert list(course.problems) == ["extras.pruning", "attention.cache", "attention.mask"]
    problem = course.problems["attention.cache"]
    assert (problem.unit, problem.module, problem.title) == ("attention", "cache", "A cache")
    assert (problem.track, problem.points, problem.handout) == ("core", 4, "The KV cache")
    assert problem.groups == {"append": 3, "ragged": 2, "rollback": 1}
    assert problem.gate == "append"
    assert problem.grader_costs == {"calls": Fraction(1, 10)}
    assert problem.submission_costs == {"bytes": Fraction(2, 10)}
    assert course.problems["attention.mask"].costs == {}
    assert (problem.file, problem.target) == (None, "attention/cache.py")
    assert course.answers == {}


def test_a_problem_may_have_a_file_of_answers(tmp_path):
    course = small_course(tmp_path, COURSE.replace(MASK, MASK + 'file = "review.toml"\n'))
    problem = course.problems["attention.mask"]
    assert (problem.file, problem.target, problem.gate) == ("review.toml", "review.toml", None)
    assert course.answers == {"review.toml": problem}
    assert sum(map(problem.group_points, problem.groups)) == problem.points


def test_a_problem_may_need_others_that_stand_before_it(tmp_path):
    text = COURSE.replace(MASK, MASK + 'needs = ["attention.cache", "extras.pruning"]\n')
    problems = small_course(tmp_path, text).problems
    assert problems["attention.mask"].needs == ("attention.cache", "extras.pruning")
    assert problems["attention.cache"].needs == ()


def test_shares_are_exact(tmp_path):
    problem = small_course(tmp_path).problems["attention.cache"]
    assert problem.correctness_share == Fraction(7, 10)
    assert problem.group_points("append") == Fraction(3, 6) * Fraction(7, 10) * 4
    assert problem.cost_points("bytes") == Fraction(8, 10)
    parts = [problem.group_points(g) for g in problem.groups]
    parts += [problem.cost_points(c) for c in problem.costs]
    assert sum(parts) == problem.points


WRONG = [  # old text, new text, what the message must name
    ('title = "A small course"', "", ["title is missing"]),
    ('title = "A small course"', 'titel = "A small course"', ["title"]),
    ('[units.extras]\ntitle = "Extras"', "", ["extras.pruning", "'extras'", "[units.extras]"]),
    ('title = "Extras"', 'title = "Extras"\ndeu = 2027-01-01', ["extras", "'deu'", "'due'"]),
    ("due = 2027-02-12", 'due = "2027-02-12"', ["attention", "due", "a date without quotes"]),
    ("due = 2027-02-12", "due = 2027-02-12T10:00:00", ["due", "a date"]),
    ("[units.extras]", "[units.Extras]", ["'Extras'"]),
    ('"attention.mask"', '"attention-mask"', ["'attention-mask'", "attention.kv_cache"]),
    ('track = "elective"', 'track = "optional"', ["extras.pruning", "track", "'elective'"]),
    ("points = 3", "points = 0", ["attention.mask", "points is 0", "above 0"]),
    ("points = 3", "points = -1", ["points is -1"]),
    ("points = 3", "points = nan", ["points is NaN"]),
    ("points = 3", "points = inf", ["points is Infinity"]),
    ("points = 3", "points = true", ["points is True"]),
    ("points = 3", 'points = "3"', ["points is '3'", "a number"]),
    ("points = 3", "points = 3.125", ["points is 3.125", "two decimals"]),
    ("points = 3\n", "", ["attention.mask", "points is missing"]),
    ('handout = "Masks"', 'handout = " "', ["handout", "not empty"]),
    ('handout = "Masks"', 'handuot = "Masks"', ["attention.mask", "handout is missing"]),
    ("{ causal = 1, window = 1 }", "{}", ["attention.mask", "groups", "at least one"]),
    ("{ causal = 1, window = 1 }", "3", ["groups is 3", "a table"]),
    ("{ causal = 1, window = 1 }", "{ causal = 0 }", ["groups", "above 0 for each name"]),
    ("{ causal = 1, window = 1 }", '{ "a b" = 1 }', ["groups", "'a b'"]),
    ("{ masks = 1 }", "{ masks = 1 }\nweights = 2", ["extras.pruning", "'weights'", "only"]),
    (MASK, MASK + 'file = "review.py"\n', ["attention.mask", "file", "ends in .toml"]),
    (MASK, MASK + 'file = "a/review.toml"\n', ["file is 'a/review.toml'"]),
    (MASK, MASK + 'file = "../review.toml"\n', ["file is '../review.toml'"]),
    (MASK, MASK + 'file = "Review.toml"\n', ["file", "small letters"]),
    (MASK, MASK + "file = 3\n", ["file is 3"]),
    (MASK, MASK + 'needs = "attention.cache"\n', ["attention.mask", "needs", "a list of problems"]),
    (MASK, MASK + "needs = []\n", ["needs is []", "a list of problems"]),
    (MASK, MASK + "needs = [3]\n", ["needs is [3]", "'serving.scheduler'"]),
    (MASK, MASK + 'needs = ["attention"]\n', ["needs is ['attention']"]),
    (MASK, MASK + 'needs = ["attention.kv_cache"]\n', ["needs 'attention.kv_cache'", "before it"]),
    (MASK, MASK + 'needs = ["attention.mask"]\n', ["attention.mask needs 'attention.mask'"]),
    (
        'handout = "The KV cache"\n',
        'handout = "The KV cache"\nneeds = ["attention.mask"]\n',
        ["attention.cache needs 'attention.mask'", "a problem that stands before it"],
    ),
    ("calls = 0.1", "calls = 0.11", ["attention.cache", "costs", "0.31", "at most 0.3"]),
    (
        "{ calls = 0.1 }, submission = { bytes = 0.2 }",
        "{ calls = 0.05 }, submission = { bytes = 0.21 }",
        ["attention.cache", "submission", "0.21", "at most 0.2"],
    ),
    ("calls = 0.1", "bytes = 0.1", ["'bytes'", "both counters"]),
    ("grader = {", "graders = {", ["costs", "'graders'", "'grader'"]),
    ("costs = {", "costs = 3 #", ["costs is 3", "a table"]),
    ('title = "A mask"', "title = ", ["not valid TOML", "line"]),
    ('"attention.mask"', '"attention.cache"', ["not valid TOML"]),
]


@pytest.mark.parametrize(("old", "new", "named"), WRONG, ids=range(len(WRONG)))
def test_a_fault_in_the_file_is_named(tmp_path, old, new, named):
    assert COURSE.count(old) == 1
    with pytest.raises(CourseError) as error:
        small_course(tmp_path, COURSE.replace(old, new))
    missing = [part for part in ["course.toml", *named] if part not in str(error.value)]
    assert not missing, str(error.value)


def test_two_problems_cannot_share_a_file(tmp_path):
    cache, file = 'handout = "The KV cache"\n', 'file = "review.toml"\n'
    text = COURSE.replace(MASK, MASK + file).replace(cache, cache + file)
    with pytest.raises(CourseError, match="attention.cache and attention.mask have the file"):
        small_course(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CourseError, match=r"nowhere\.toml: cannot be read"):
        load_course(tmp_path / "nowhere.toml")
