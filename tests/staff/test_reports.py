"""The terminal's report and results.json: what they say, and that no submission can bend them."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.grading import results
from tests.grading.html import write_html
from tests.grading.records import Finding, Place
from tests.grading.results import as_data, write_json
from tests.grading.scoring import score
from tests.grading.terminal import print_report
from tests.grading.tiers import describe
from tests.grading.wording import amount, clean, multiple, one_line, points
from tests.staff.samples import (
    CACHE,
    RUN,
    figure,
    perfect_run,
    record,
    small_course,
    started,
    with_,
)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return small_course(tmp_path_factory.mktemp("course"))


def printed(report, width=80, encoding="utf-8"):
    """What the terminal shows, with no tty behind it."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    print_report(report, Console(file=file, width=width))
    file.flush()
    return file.buffer.getvalue().decode(encoding).splitlines()


# The terminal.


def test_the_last_line_is_the_score(course):
    lines = printed(score(course, started(), RUN))
    assert lines[-2:] == ["electives: +2 / 2", "score: 2.33 / 7"]
    assert printed(score(course, perfect_run()))[-1] == "score: 7 / 7"
    assert printed(score(course, []))[-1] == "score: 0 / 7"
    core_alone = score(course, perfect_run(), problems=[CACHE])
    assert printed(core_alone)[-2:] == ["", "score: 4 / 4"]


def test_of_electives_alone_the_score_is_theirs(course):
    """Not 0 / 0: who asks for them wants to know."""
    report = score(course, perfect_run(), problems=["extras.pruning"])
    assert printed(report)[-2:] == ["", "score: 2 / 2"]


def test_a_cost_is_told_by_its_worst_test(course):
    """The table and the first failure give the same figure."""
    figures = [figure(number) for number in (400, 2_000, 1_000)]
    costs = [
        record(CACHE, "bytes", "failed", describe(bytes_), measured=bytes_, number=number)
        for number, bytes_ in enumerate(figures)
    ]
    lines = printed(score(course, with_(perfect_run(), *costs), RUN))
    assert any("bytes 20× the ideal, too much" in line for line in lines)
    first = lines.index("What fails first")
    assert lines[first + 1 : first + 3] == [f"  {CACHE}  3 tests", "    test_bytes[1]"]
    assert "2,000 bytes, 20× the ideal of 100" in lines[first + 3]


def test_what_fails_like_the_first_and_what_otherwise(course):
    differs = [record(CACHE, "append", "failed", f"expected 2, got {n}", number=n) for n in (3, 4)]
    other = record(CACHE, "ragged", "failed", "expected a tensor, got None")
    shown = "\n".join(printed(score(course, with_(perfect_run(), *differs, other), RUN)))
    assert f"  {CACHE}  2 tests fail like this, 1 otherwise" in shown


def test_the_table_shows_points_groups_and_costs(course):
    text = "\n".join(printed(score(course, started(), RUN)))
    assert "assignment · isolated · seed 7 · 12.3 s" in text
    assert "due 12 February 2027" in text
    assert "✓ append   ✗ ragged   · rollback" in text
    assert "✓ calls 1.00× the ideal" in text
    assert "~ bytes 1.42× the ideal, two thirds   reference 1.01×   cat 45×" in text
    assert "nothing counts until causal passes" in text
    assert "first differs at batch 1: expected 2, got 3" in text
    assert "Next  assignment/attention/cache.py" in text
    assert "pytest tests/attention/test_cache.py" in text


def test_a_fresh_assignment_is_a_line_a_problem(course):
    stubs = [
        replace(r, outcome="failed", message="not written", unwritten=True, figure=None)
        for r in perfect_run()
    ]
    lines = printed(score(course, stubs, RUN))
    assert sum("not started" in line for line in lines) == 3
    assert not any("✗" in line or "fails" in line for line in lines)


def test_a_broken_file_is_a_line_and_its_reason(course):
    broken = [
        replace(r, outcome="failed", message=f"{CACHE}: line 3: SyntaxError", figure=None)
        for r in perfect_run()
        if r.problem == CACHE
    ]
    lines = printed(score(course, broken, RUN, problems=[CACHE]))
    assert not any("✗" in line for line in lines)
    assert lines[lines.index(f"  {CACHE}  7 tests") + 1] == "    line 3: SyntaxError"


def test_a_grader_error_has_its_own_lines(course):
    spoilt = with_(perfect_run(), record(CACHE, "ragged", "grader error", "the oracle broke"))
    report = score(course, spoilt, RUN, faults=["tests/hidden does not load"])
    text = " ".join(" ".join(printed(report)).split())
    assert "The grader's own fault, not yours" in text
    assert "attention.cache: provisional, 3.07 to 4 points: the oracle broke" in text
    assert "tests/hidden does not load" in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_poor_encoding_gets_plain_characters(course, encoding):
    lines = printed(score(course, started(), RUN), encoding=encoding)
    text = "\n".join(lines)
    assert "+ append   x ragged   . rollback" in text
    assert "1.42x the ideal" in text
    assert text.isascii()
    assert lines[-1] == "score: 2.33 / 7"


def test_notes_and_missing_walls_are_lines_under_the_head(course):
    walls = {"user": "", "network": "not permitted", "files": "no landlock"}
    run = replace(RUN, notes=("left out: a.pyc\x1b[2J", *map(str, range(8))), walls=walls)
    lines = printed(score(course, started(), run))
    assert lines[2] == "  left out: a.pyc�[2J"
    assert lines[6:9] == ["  3", "  and 4 more notes", "without walls: network, files"]
    standing = replace(RUN, walls={"user": "", "network": ""})
    assert "wall" not in "\n".join(printed(score(course, started(), standing)))


def test_failures_that_differ_in_numbers_only_are_counted_as_one(course):
    shapes = [
        record(CACHE, part, "failed", f"run returned f32[{n},1], expected B={n}", number=n)
        for n, part in enumerate(["append", "ragged", "ragged"])
    ]
    text = "\n".join(printed(score(course, with_(perfect_run(), *shapes), RUN)))
    assert "attention.cache  3 tests\n" in text


def test_the_next_step_names_the_line(course):
    place = Place("attention/cache.py", 41, "append", "raise NotImplementedError")
    here = record(CACHE, "ragged", "failed", "wrong", finding=Finding(place=place))
    lines = printed(score(course, with_(perfect_run(), here), RUN))
    assert "Next  assignment/attention/cache.py:41" in lines
    elsewhere = Finding(place=replace(place, file="attention/helpers.py"))
    here = record(CACHE, "ragged", "failed", "wrong", finding=elsewhere)
    lines = printed(score(course, with_(perfect_run(), here), RUN))
    assert "Next  assignment/attention/cache.py" in lines


@pytest.mark.parametrize(
    ("submission", "file"),
    [
        ("work/", "work/attention/cache.py"),
        ("hand-in.zip", "hand-in.zip/attention/cache.py"),
        ("work/cache.py", "work/cache.py"),
        ("cache.py", "cache.py"),
        ("work/mask.py", "attention/cache.py"),
        ("work/my_cache.py", "attention/cache.py"),
    ],
)
def test_the_next_steps_file_is_below_what_was_handed_in(course, submission, file):
    wrong = with_(perfect_run(), record(CACHE, "ragged", "failed", "wrong"))
    report = score(course, wrong, replace(RUN, submission=submission))
    assert report.next_step.file == file


@pytest.mark.parametrize("width", [0, 1, 10, 19])
def test_a_tiny_terminal_still_gets_the_score_on_one_line(course, width):
    assert printed(score(course, started(), RUN), width)[-1] == "score: 2.33 / 7"


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(course, width):
    lines = printed(score(course, started(), RUN), width)
    assert max(map(len, lines)) <= width
    assert width < 80 or not any(line.endswith(" ") for line in lines)


def test_colour_is_for_a_tty_alone(course):
    report = score(course, started(), RUN)
    assert "\x1b" not in "\n".join(printed(report))
    file = io.StringIO()
    print_report(report, Console(file=file, force_terminal=True, color_system="standard"))
    assert "\x1b[32m" in file.getvalue()


def test_a_submission_cannot_write_on_the_terminal(course):
    lines = printed(score(course, started(), RUN))
    assert "\x1b" not in "\n".join(lines)
    assert [line for line in lines if line.startswith("score")] == ["score: 2.33 / 7"]


# results.json.


def validated(report):
    data = json.loads(json.dumps(as_data(report), allow_nan=False))
    schema = json.loads(results.SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)
    return data


def test_results_follow_their_schema(course):
    jsonschema.Draft202012Validator.check_schema(json.loads(results.SCHEMA.read_text("utf-8")))
    data = validated(score(course, started(), RUN))
    assert (data["course"], data["mode"], data["seed"]) == ("A small course", "isolated", 7)
    assert data["versions"] == {"triton": None}
    core = data["totals"]["core"]
    assert core == {"points": 2.33, "points_exact": "7/3", "possible": 7}
    cache = next(p for p in data["problems"] if p["name"] == CACHE)
    assert [g["state"] for g in cache["groups"]] == ["passed", "failed", "unwritten"]
    assert cache["costs"][1]["figure"]["ratio"] == 1.42
    assert cache["costs"][1]["tier"] == "two thirds"
    assert data["next_step"]["problem"] == CACHE
    assert len(cache["tests"]) == 7


def test_every_key_of_the_schema_is_described():
    schema = json.loads(results.SCHEMA.read_text(encoding="utf-8"))
    tables = [schema, schema["properties"]["totals"], *schema["$defs"].values()]
    keys = [(name, key) for table in tables for name, key in table["properties"].items()]
    references = [name for name, key in keys if "description" not in key]
    assert set(references) == {"figure"}  # described where it is defined


def test_results_of_odd_runs_follow_the_schema(course):
    validated(score(course, []))
    error = record(CACHE, "ragged", "grader error")
    odd = record(CACHE, "bytes", "failed", measured=figure(math.nan, beside={"x": math.inf}))
    data = validated(score(course, with_(perfect_run(), error, odd)))
    assert data["totals"]["provisional"]
    cache = next(p for p in data["problems"] if p["name"] == CACHE)
    assert cache["costs"][1]["figure"]["got"] is None
    validated(score(course, [], problems=[]))


def test_a_finding_is_in_the_results_cleaned_and_whole(course):
    place = Place("attention/cache.py", 41, "append", "x = 1\x00")
    finding = Finding("keys", "row 0, token 3", "2", "3\x1b", "1 of 6", place)
    wrong = record(CACHE, "ragged", "failed", "wrong", finding=finding)
    data = validated(score(course, with_(perfect_run(), wrong), RUN))
    cache = next(p for p in data["problems"] if p["name"] == CACHE)
    expected = {
        **{"what": "keys", "where": "row 0, token 3", "expected": "2", "got": "3�"},
        "note": "1 of 6",
        "place": vars(place) | {"source": "x = 1�"},
    }
    assert cache["failures"][0]["finding"] == expected
    failed = next(test for test in cache["tests"] if test["outcome"] == "failed")
    assert failed["finding"] == expected
    assert data["next_step"]["line"] == 41


def test_parts_of_a_problem_add_up_to_it(course):
    for records in (
        started(),
        perfect_run(),
        with_(perfect_run(), record(CACHE, "ragged", "failed")),
    ):
        for problem in validated(score(course, records))["problems"]:
            parts = problem["groups"] + problem["costs"]
            for key in ("points", "possible"):
                assert sum(part[key] for part in parts) == pytest.approx(problem[key])
            full = [p for p in parts if p["state"] == "passed"] if problem["points"] else []
            assert all(part["points"] == part["possible"] for part in full)


def test_long_texts_are_cut(course):
    finding = Finding(*["f" * 1_000_000] * 5, Place("p" * 1_000_000, 1, "", "s" * 1_000_000))
    long = record(
        CACHE, "ragged", "failed", "m" * 1_000_000, details="d" * 1_000_000, finding=finding
    )
    report = score(course, with_(perfect_run(), long))
    assert len(json.dumps(validated(report))) < 60_000
    assert len("\n".join(printed(report))) < 5_000


def test_files_are_written_whole(course, tmp_path, monkeypatch):
    path = tmp_path / "deep" / "results.json"
    write_json(score(course, []), path)
    write_html(score(course, started()), path.with_name("report.html"))
    before = path.read_text()
    monkeypatch.setattr(results.os, "replace", lambda *paths: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_json(score(course, perfect_run()), path)
    assert path.read_text() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["report.html", "results.json"]


# Other people's text and numbers.


def test_numbers_read_well():
    assert [points(n) for n in (0, 4, 2.8, 3.726)] == ["0", "4", "2.8", "3.73"]
    assert [amount(n) for n in (0, 1234567, 0.5, 2.0)] == ["0", "1,234,567", "0.5", "2"]
    assert [amount(n) for n in (10**30, 10**15 - 1)] == ["1e+30", "999,999,999,999,999"]
    assert [amount(n) for n in (math.nan, math.inf, "x\x00")] == ["nan", "inf", "x�"]
    assert [multiple(n) for n in (0, 0.0021, 0.5, 1.416)] == ["0×", "0.002×", "0.50×", "1.42×"]
    assert [multiple(n) for n in (45.2, 1250, 3e7)] == ["45×", "1,250×", "3.0e+07×"]


def test_texts_are_cleaned():
    assert clean("a\r\nb\tc\x1b[0m", 100) == "a\nb\tc�[0m"
    assert clean("abcdef", 3) == "abc … (3 more characters)"
    assert one_line("\n\n  first   line \n second", 80) == "first line"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("", 4) == ""


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(), max_size=80), st.text(st.characters(), max_size=80))
def test_any_text_can_be_reported(course, message, details):
    bad = record(CACHE, "ragged", "failed", message, details=details)
    wild = record("attention.mask", "window", "grader error", message)
    report = score(course, with_(perfect_run(), bad, wild), RUN, faults=[details])
    assert printed(report)[-1] == "score: 4.57 / 7"
    validated(report)
    json.dumps(as_data(report), ensure_ascii=False).encode("utf-8")
