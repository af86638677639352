"""`make mutants` on a small course of its own: every verdict, every bad file, the last line."""

import json
import re
import textwrap
import time

import pytest

from tests.grading import plugin
from tests.staff.authoring import killers, mutation, wrong_and_right
from tests.staff.authoring.workers import Settings, run_all

SOLUTION = '''
def total(numbers, visit):
    """Σ numbers; visits every number once."""
    # BEGIN SOLUTION
    result = 0
    for number in numbers:
        visit(number)
        result += number
    return result
    # END SOLUTION
'''
TESTS = """
import os
import pytest
from submission.toy.add import total

@pytest.mark.group("basic")
def test_sum(draw):
    numbers = draw.integers(1, 10, 5).tolist()
    assert total(numbers, print) == sum(numbers)

@pytest.mark.group("basic")
def test_empty():
    assert total([], print) == 0

@pytest.mark.cost("visits")
def test_visits(budget):
    seen = []
    assert total([1, 2, 3], seen.append) == 6
    budget(len(seen), 3, unit="visits")
"""
COURSE = """
title = "Toy"
[units.toy]
title = "Toy"
[problems."toy.add"]
title = "Add"
track = "core"
points = 1
handout = "Add"
groups = { basic = 1 }
costs = { grader = { visits = 0.3 } }
"""
WRONG = ("forgets", "correctness", "result += number", "result = number")
DEAR = ("visits twice", "cost", "visit(number)", "visit(number), visit(number)")


def table(name, loses, old, new, **more):
    fields = {"name": name, "idea": f"idea of {name}", "loses": loses, "old": old, "new": new}
    rows = [
        f"{key} = {json.dumps(value)}"
        for key, value in {**fields, **more}.items()
        if value is not ...
    ]
    return "\n".join(["[[mutant]]", *rows, ""])


@pytest.fixture
def root(tmp_path, monkeypatch):
    root = tmp_path / "course"
    write(root, "solutions/__init__.py", "")
    write(root, "solutions/toy/__init__.py", "")
    write(root, "solutions/toy/add.py", SOLUTION)
    write(root, "tests/conftest.py", 'pytest_plugins = ("tests.grading.plugin",)\n')
    write(root, "tests/course.toml", COURSE)
    write(root, "tests/toy/test_add.py", TESTS)
    write(root, "tests/staff/mutants/toy/add.toml", table(*WRONG) + table(*DEAR))
    monkeypatch.setattr(plugin, "TESTS", root / "tests")  # the forks inherit it
    return root


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"))


def write_mutants(root, *tables):
    write(root, "tests/staff/mutants/toy/add.toml", "\n".join(table(*each) for each in tables))


def write_variant(root, name, body):
    text = f'"""A {name} variant."""\n\n\ndef total(numbers, visit):\n'
    write(
        root, f"tests/staff/variants/toy/add/{name}.py", text + textwrap.indent(body, "    ") + "\n"
    )


def run(root, capsys, *arguments):
    code = mutation.main(list(arguments), root)
    output = capsys.readouterr().out
    return code, output, output.splitlines()[-1]


def test_killed_and_accepted(root, capsys):
    write_variant(root, "recursive", "[visit(number) for number in numbers]\nreturn sum(numbers)")
    code, output, last = run(root, capsys)
    assert last == "mutants: 2 killed, 0 survived; variants: 1 accepted, 0 rejected"
    assert code == 0 and output == f"{last}\n"


def test_verbose_says_what_killed(root, capsys):
    output = run(root, capsys, "--verbose", "--unit", "toy", "--jobs", "1")[1]
    assert "✓ toy.add mutant forgets" in output and "test_sum: " in output
    assert "✓ toy.add mutant visits twice" in output and "6 visits, 2.0" in output


LATE = ("loses an empty list", "correctness", "result = 0", "result = 0 if numbers else None")


def killers_of(root):
    return json.loads((root / "tests/staff/mutants/killers.json").read_text())


def test_what_caught_a_mutant_late_is_remembered_and_runs_first(root, capsys, monkeypatch):
    monkeypatch.setattr(killers, "EARLY", 1)
    write_mutants(root, WRONG, DEAR, LATE)
    assert "3 killed" in run(root, capsys, "--remember")[2]
    assert killers_of(root) == {"toy.add": {LATE[0]: "test_empty"}}
    late = next(c for c in wrong_and_right.load(root, "toy.add")[0] if c.name == LATE[0])
    (outcome,) = run_all([late], Settings(root))
    assert [record.test.partition("::")[2] for record in outcome.records] == ["test_empty"]
    run(root, capsys, "--remember")
    assert killers_of(root) == {"toy.add": {LATE[0]: "test_empty"}}, "forgotten the second time"


@pytest.mark.parametrize("hint", ["test_sum", "test_gone"])
def test_a_wrong_hint_changes_no_verdict(root, capsys, hint):
    write_mutants(root, WRONG, LATE, ("harmless", "correctness", "return result", "return +result"))
    hints = {"toy.add": dict.fromkeys((WRONG[0], LATE[0], "harmless"), hint)}
    write(root, "tests/staff/mutants/killers.json", json.dumps(hints))
    code, _, last = run(root, capsys)
    assert code == 1 and last.startswith("mutants: 2 killed, 1 survived;")


def test_a_part_of_the_mutants(root, capsys):
    write_mutants(root, WRONG, LATE, DEAR)
    lasts = [run(root, capsys, "--part", part)[2] for part in ("1/2", "2/2")]
    assert [last.partition(",")[0] for last in lasts] == ["mutants: 2 killed", "mutants: 1 killed"]


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "a/b"])
def test_a_part_that_is_none(root, capsys, part):
    with pytest.raises(SystemExit):
        mutation.main(["--part", part], root)
    assert "expected a part such as 1/2" in capsys.readouterr().err


SURVIVORS = {
    "harmless": (("correctness", "result = 0", "result = 0 + 0"), "all 2 correctness tests"),
    "cost where correctness was promised": (
        ("correctness", "visit(number)", "visit(number), visit(number)"),
        "all 2 correctness tests pass",
    ),
    "correctness where cost was promised": (
        ("cost", "result += number", "result = number"),
        "loses correctness, not cost alone: test_sum",
    ),
    "wrong only in the cost test": (
        ("cost", "return result", "return result + (numbers == [1, 2, 3])"),
        "loses correctness, not cost alone: test_visits",
    ),
    "cheap after all": (("cost", "result = 0", "result = 0 + 0"), "full tier"),
    "broken code": (
        ("correctness", "return result", "return resultt"),
        "broken code, not a misconception: test_sum: NameError",
    ),
    "does not load": (
        ("correctness", "def total", "no_such_name\ndef total"),
        "does not load: toy.add: ",
    ),
    "leaves the process": (
        ("correctness", "return result", "__import__('os')._exit(0)"),
        "the process left with status 0",
    ),
}


def test_survivors_are_listed_with_their_reasons(root, capsys):
    mutants = [(name, *mutant) for name, (mutant, _) in SURVIVORS.items()]
    write_mutants(root, *mutants)
    code, output, last = run(root, capsys)
    assert code == 1
    counted = f"mutants: 0 killed, {len(mutants)} survived; variants: 0 accepted, 0 rejected"
    assert last == counted
    rows = squeezed_rows(output)
    for name, (_, reason) in SURVIVORS.items():
        [row] = [row for row in rows if f"toy.add mutant {name} " in row]
        assert f"idea of {name}" in row and reason in row


def squeezed_rows(output):
    """The table's rows, each in one line."""
    table = output[output.index("Not as it should be") :]
    return [_unfolded(part) for part in re.split(r"[├└┡]", table)]


def _unfolded(part):
    lines = [line.split("│")[1:4] for line in part.splitlines() if line.startswith("│")]
    return " ".join(
        " ".join(cell.strip() for cell in column) for column in zip(*lines, strict=True)
    )


def squeezed(output):
    """The words without the table's lines and folds."""
    return " ".join(output.replace("│", " ").split())


def test_a_hang_and_a_crash_count_as_killed_and_say_so(root, capsys, tmp_path):
    child = f"subprocess.Popen(['sh', '-c', 'sleep 3; echo > {tmp_path}/alive'])"
    write_mutants(
        root,
        ("hangs", "correctness", "return result", f"import subprocess; {child}\n    while 1: pass"),
        ("crashes", "correctness", "return result", "__import__('os').abort()"),
        ("hangs cheaply", "cost", "return result", "while True: pass"),
    )
    started = time.monotonic()
    code, output, last = run(root, capsys, "--limit", "2.5", "--verbose")
    assert time.monotonic() - started < 12
    assert "✓ toy.add mutant hangs (2.5 s): no end within 2.5 s" in output
    assert "crashed with SIGABRT" in output
    assert "✗ toy.add mutant hangs cheaply" in output
    assert last.startswith("mutants: 2 killed, 1 survived") and code == 1
    time.sleep(max(0, started + 4.5 - time.monotonic()))
    assert not (tmp_path / "alive").exists(), "what a file started must end with it"


def test_rejected_variants(root, capsys):
    write_variant(root, "dear", "[visit(n) for n in numbers * 2]\nreturn sum(numbers)")
    write_variant(root, "wrong", "[visit(n) for n in numbers]\nreturn 3")
    write_variant(root, "right", "[visit(n) for n in numbers]\nprint('hm')\nreturn sum(numbers)")
    write(root, "tests/staff/variants/toy/add/__init__.py", "")
    code, output, last = run(root, capsys)
    assert code == 1 and last.endswith("variants: 1 accepted, 2 rejected")
    assert "variant wrong" in output and "variant dear" in output and "variant right" not in output
    assert "A wrong variant." in output and "assert 3 ==" in output


def test_a_failing_reference_stops_its_problem(root, capsys):
    write(root, "tests/toy/test_add.py", TESTS.replace("== 6", "== 7"))
    code, output, last = run(root, capsys)
    assert code == 1 and "fails its own tests" in squeezed(output)
    assert last == "mutants: 0 killed, 0 survived; variants: 0 accepted, 0 rejected"


def test_a_fault_of_the_tests_is_never_a_kill(root, capsys):
    write(
        root,
        "tests/toy/test_add.py",
        TESTS + "\n@pytest.mark.group('basic')\ndef test_x(no_such_fixture):\n    pass\n",
    )
    code, output, _ = run(root, capsys)
    assert (
        code == 1
        and "fails its own tests" in squeezed(output)
        and "grader error" in squeezed(output)
    )


def test_tests_that_do_not_load(root, capsys):
    write(root, "tests/toy/test_add.py", "import no_such_module\n")
    code, output, _ = run(root, capsys)
    assert code == 1 and "does not load" in squeezed(output)


BAD = {
    "old matches nowhere": (table("m", "cost", "no such text", "x"), "old matches 0 times"),
    "old matches twice": (table("m", "cost", "number", "x"), "times in the reference"),
    "nothing changed": (table("m", "cost", "visit(number)", "visit(number)"), "equal to old"),
    "does not compile": (table("m", "cost", "return result", "return ("), "does not compile"),
    "name taken": (table(*WRONG) + table(*WRONG), "the name is taken"),
    "other loss": (table("m", "points", "return", "x"), "expected one of correctness, cost"),
    "key missing": (table("m", "cost", "a", "b", idea=...), "no idea"),
    "key empty": (table("m", "cost", "a", "b", idea=" "), "idea is ' '"),
    "key of another kind": (table("m", "cost", "a", 3), "new is 3"),
    "key unknown": (table("m", "cost", "a", "b", why="x"), "unknown key why"),
    "no mutants": ("", "at least one"),
    "other table": ("[mutants]\nx = 1\n", "nothing else"),
    "no TOML": ("[[mutant]\n", "not valid TOML"),
    "no table": ("mutant = [3]\n", "mutant 1 is 3; expected a table with name, idea"),
    "a text for a table": ('mutant = ["name"]\n', "mutant 1 is 'name'; expected a table"),
    "one table": ("[mutant]\nname = 1\n", "must hold [[mutant]] tables"),
    "name of another kind": (table(3, "cost", "a", "b"), "mutant 3: name is 3; expected a text"),
    "no UTF-8": (b'[[mutant]]\nname = "\xff"\n', "byte 19 is 0xff; expected text in UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_named(root, name):
    text, reason = BAD[name]
    (root / "tests/staff/mutants/toy/add.toml").write_bytes(
        text if isinstance(text, bytes) else text.encode()
    )
    _, faults = wrong_and_right.load(root, "toy.add")
    assert len(faults) == 1 and reason in faults[0]
    assert faults[0].startswith("tests/staff/mutants/toy/add.toml: ")


def test_missing_files_are_named(root):
    (root / "tests/staff/mutants/toy/add.toml").unlink()
    assert "missing" in wrong_and_right.load(root, "toy.add")[1][0]
    (root / "solutions/toy/add.py").unlink()
    assert "solutions/toy/add.py: missing" in wrong_and_right.load(root, "toy.add")[1][0]


def test_a_bad_file_fails_the_run_and_the_others_still_run(root, capsys):
    write_mutants(root, WRONG, ("m", "cost", "no such text", "x"))
    write(root, "tests/staff/variants/toy/add/bad.py", "def (:\n")
    write(root, "tests/staff/mutants/toy/ad.toml", "")
    write(root, "tests/staff/variants/toys/add/x.py", "")
    code, output, last = run(root, capsys)
    assert code == 1
    assert last == "mutants: 1 killed, 0 survived; variants: 0 accepted, 0 rejected"
    for text in ("old matches 0 times", "variants/toy/add/bad.py: does not compile"):
        assert text in output
    assert "mutants/toy/ad.toml: belongs to no problem" in output
    assert "variants/toys/add: belongs to no problem" in output


def test_a_variant_that_cannot_be_read_fails_the_run_and_the_others_still_run(root, capsys):
    write_variant(root, "right", "[visit(n) for n in numbers]\nreturn sum(numbers)")
    (root / "tests/staff/variants/toy/add/latin.py").write_bytes(b"NAME = '\xe9'\n")
    (root / "tests/staff/variants/toy/add/folder.py").mkdir()
    code, output, last = run(root, capsys)
    assert code == 1
    assert last == "mutants: 2 killed, 0 survived; variants: 1 accepted, 0 rejected"
    assert "toy/add/latin.py: byte 8 is 0xe9; expected text in UTF-8\n" in output
    assert "toy/add/folder.py: cannot be read: Is a directory\n" in output


def test_a_reference_that_is_no_text_stops_its_problem(root, capsys):
    (root / "solutions/toy/add.py").write_bytes(b"\xff")
    code, output, _ = run(root, capsys)
    assert code == 1
    assert output.startswith("solutions/toy/add.py: byte 0 is 0xff; expected text in UTF-8\n")


def test_a_broken_course_is_one_line(root, capsys):
    write(root, "tests/course.toml", COURSE + "x = [\n")
    code, output, last = run(root, capsys)
    assert code == 1 and output == f"{last}\n"
    assert "tests/course.toml: not valid TOML: " in last


@pytest.mark.parametrize("option", ["--jobs", "--limit"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "two"])
def test_numbers_that_make_no_sense_are_a_wrong_call(root, capsys, option, value):
    with pytest.raises(SystemExit) as left:
        mutation.main([f"{option}={value}"], root)
    assert left.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {option}: got {value!r}, expected a" in last and last.endswith("above 0")


def test_unknown_unit_or_problem(root, capsys):
    assert run(root, capsys, "--unit", "toys")[0] == 1
    code, output, _ = run(root, capsys, "--problem", "toy.ad")
    assert code == 1 and "there are: toy.add" in output


def test_runs_are_reproducible_and_the_seed_matters(root):
    test = "@pytest.mark.group('basic')\ndef test_x(draw):\n    value = draw.seed()\n"
    write(root, "tests/toy/test_add.py", f"{TESTS}\n{test}    assert value < 0\n")
    candidates = [wrong_and_right.load(root, "toy.add")[0][0]] * 3
    first, again, _ = run_all(candidates, Settings(root, seed=1))
    other = run_all(candidates[:1], Settings(root, seed=2, workers=1))[0]
    messages = [
        next(r.message for r in outcome.records if r.outcome == "failed")
        for outcome in (first, again, other)
    ]
    assert messages[0] == messages[1] != messages[2]
