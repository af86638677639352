"""The review's sheets: what is right in any spelling, what is wrong, what cannot be read."""

from __future__ import annotations

import re
import tomllib
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignment.provided.review import Section, questions
from tests.accounting.review import sheet
from tests.accounting.review.expected import Count, Number, Numbers, Word
from tests.accounting.review.key import key
from tests.accounting.review.quantities import (
    COUNT,
    FACTOR,
    INTENSITY,
    NUMBER,
    PER_ROUND,
    RATE,
    SHARE,
    SIZE,
    TIME,
    TIME_PER_TOKEN,
    Unreadable,
    shown,
    understand,
)
from tests.accounting.review.words import MEANINGS, meaning
from tests.grading.course import load_course
from tests.grading.errors import UNANSWERED, is_unwritten
from tests.staff.authoring.handout import headings
from tests.staff.review_sheets import failures, right_answers, text_of

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "solutions/review.toml").read_text(encoding="utf-8")
MUTANTS = tomllib.loads((ROOT / "tests/staff/mutants/accounting/review.toml").read_text())["mutant"]
VARIANTS = sorted((ROOT / "tests/staff/variants/accounting/review").glob("*.toml"))
ID = "ab12"


# ---- numbers and units

READ = [
    (TIME, "0.4 s", 0.4), (TIME, "400 ms", 0.4), (TIME, "400ms", 0.4), (TIME, ".4", 0.4),
    (TIME, 0.4, 0.4), (TIME, 2, 2), (TIME, "400000 µs", 0.4), (TIME, "0.4 seconds", 0.4),
    (TIME, "TTFT = 0.4 s", 0.4), (TIME, "~0.4 s", 0.4), (TIME, "≈ 0.4 Sec.", 0.4),
    (TIME_PER_TOKEN, "20 ms/token", 0.02), (TIME_PER_TOKEN, "20 ms per token", 0.02),
    (TIME_PER_TOKEN, "0.02 s / token", 0.02), (TIME_PER_TOKEN, "20 ms", 0.02),
    (RATE, "400 tok/s", 400), (RATE, "400 tokens per second", 400), (RATE, "4e2 t/s", 400),
    (RATE, "400 tps", 400), (RATE, "1,234.5 tokens/s", 1234.5),
    (SIZE, "819200", 819200), (SIZE, "819,200 B", 819200), (SIZE, "800 KiB", 819200),
    (SIZE, "0.8192 MB", 819200), (SIZE, "819.2 kB", 819200), (SIZE, "819_200 bytes", 819200),
    (SIZE, "819 200 B", 819200), (SIZE, "819 200 B", 819200), (SIZE, "819'200", 819200),
    (SIZE, "32 GiB", 2**35), (SIZE, "2^35 B", 2**35), (SIZE, "2**35", 2**35),
    (SIZE, "1.5 * 2^10", 1536), (SIZE, "8.192 × 10^5 B", 819200), (SIZE, "8.192e5", 819200),
    (SIZE, "800 KiB/token", 819200), (SIZE, "1.5 kilobytes", 1500), (SIZE, "1 TiB", 2**40),
    (FACTOR, "56.9x", 56.9), (FACTOR, "56.9 ×", 56.9), (FACTOR, "56.9 times", 56.9),
    (FACTOR, "56.9-fold", 56.9), (FACTOR, "4/7", 4 / 7), (FACTOR, "1", 1),
    (SHARE, "60 %", 0.6), (SHARE, "60%", 0.6), (SHARE, "60 percent", 0.6), (SHARE, "0.6", 0.6),
    (SHARE, 0.6, 0.6), (SHARE, "3/5", 0.6),
    (INTENSITY, "295.22 FLOP/B", 295.22), (INTENSITY, "295.22 FLOPs per byte", 295.22),
    (INTENSITY, "295.22 flop / byte", 295.22), (INTENSITY, "295.22", 295.22),
    (COUNT, "90 blocks", 90), (COUNT, "2.25 KV heads", 2.25), (COUNT, "+5 tokens", 5),
    (FACTOR, "Unchanged.", 1), (FACTOR, "none", 1), (FACTOR, "It does not change", 1),
    (FACTOR, "They don't change.", 1), (COUNT, "None", 0), (COUNT, "no", 0),
    (COUNT, "No weights", 0), (COUNT, "0 weights", 0), (COUNT, "1,234", 1234), (COUNT, 90.0, 90),
    (TIME_PER_TOKEN, "17 ms per output token", 0.017), (RATE, "764.7 per second", 764.7),
    (RATE, "764.7 output tokens/s", 764.7), (RATE, "764.7 /s", 764.7), (RATE, "764 1/s", 764),
    (INTENSITY, "295.22 FLOPs per bytes", 295.22), (INTENSITY, "295.22 flop/bytes", 295.22),
    (INTENSITY, "989e12/3.35e12", 989 / 3.35), (INTENSITY, "9.89e+14 / 3350e9 FLOP/B", 989 / 3.35),
    (COUNT, "n >= 309", 309), (COUNT, "n ≥ 309", 309), (COUNT, "309 tok", 309),
    (COUNT, "2.25 KV-heads", 2.25), (COUNT, "zero", 0),
    (PER_ROUND, "3.362 tokens per round", 3.362),
    (FACTOR, "×1", 1), (FACTOR, "x 1.5", 1.5), (FACTOR, "factor 113.8", 113.8),
    (FACTOR, "a factor of 113.8", 113.8), (FACTOR, "113.8x smaller", 113.8), (FACTOR, "x = 2", 2),
    (FACTOR, "113.8 times fewer", 113.8), (FACTOR, "2.4 times faster", 2.4),
    (FACTOR, "no change", 1), (SHARE, "25 per cent", 0.25),
    (NUMBER, "-12", -12), (NUMBER, "−12", -12), (NUMBER, "1e-3", 0.001), (NUMBER, "5.", 5),
]  # fmt: skip


@pytest.mark.parametrize(("quantity", "text", "number"), READ, ids=ascii)
def test_a_number_is_understood(quantity, text, number):
    assert understand(text, quantity) == pytest.approx(number, rel=1e-12)


UNREADABLE = [
    (TIME, "0.4 miles", "'miles' is unknown here; it is wanted in s"),
    (TIME, "0,4 s", "a point for decimals"), (TIME, "0,400 s", "a point for decimals"),
    (TIME, "soon", "does not begin with a number"), (TIME, "s", "does not begin with a number"),
    (TIME, "1 2 s", "no number"), (TIME, "1.2.3", "unknown"), (TIME, True, "true or false"),
    (TIME, [0.4], "a list"), (TIME, {"s": 0.4}, "a table"), (TIME, "0.4\n0.5", "number"),
    (TIME, float("nan"), "no finite"), (TIME, float("inf"), "no finite"), (TIME, "nan", "number"),
    (TIME, "1e999", "no finite"), (TIME, "9^999", "no finite"), (TIME, "1/0", "no finite"),
    (TIME, 10**400, "no finite"), (TIME, "9" * 201, "201 characters"), (TIME, "1" * 150, None),
    (TIME, "1e99999999999", "unknown"), (COUNT, "90 apples", "a number without a unit"),
    (SIZE, "5 furlongs", "in bytes"), (NUMBER, "5 s", "without a unit"), (SHARE, "60 s", "unknown"),
    (SIZE, "1,23 B", "thousands in threes"), (RATE, "5 s/tok", "unknown"), (TIME, None, "NoneType"),
    (TIME, "none", "number"), (SHARE, "unchanged", "number"), (COUNT, "unchanged", "number"),
    (COUNT, "none or 1", "number"), (COUNT, "no?", "number"), (FACTOR, "none, 2", "number"),
    (FACTOR, "factor 2 or 3", "'or 3' is unknown"), (FACTOR, "factor", "number"),
    (FACTOR, "2.4 times slower", "unknown"), (FACTOR, "×1 or ×2", "unknown"),
    (SIZE, "factor 2", "number"), (COUNT, "x 2", "number"), (COUNT, "n > 308", "number"),
    (COUNT, "3 tokens per round", "unknown"), (RATE, "5 per minute", "unknown"),
    (INTENSITY, "989e12/3.35e12/2", "unknown"), (INTENSITY, "1/0e3", "no finite"),
    (FACTOR, "unchanged or doubled", "number"), (COUNT, "0 or 1", "'or 1' is unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("quantity", "value", "said"), UNREADABLE, ids=lambda v: ascii(v)[:40])
def test_what_is_no_number_is_told(quantity, value, said):
    if said is None:
        assert understand(value, quantity) > 1e149
        return
    with pytest.raises(Unreadable, match=re.escape(said)):
        understand(value, quantity)


@given(st.floats(1e-6, 1e12), st.sampled_from([TIME, SIZE, RATE, SHARE, COUNT, FACTOR]), st.data())
def test_a_number_survives_each_of_its_units(number, quantity, data):
    unit, worth = data.draw(st.sampled_from(sorted(quantity.units.items())))
    written = data.draw(st.sampled_from(["{:.12g} {}", "{:.12g}{}", "{:,.6f} {}", "{:.12e} {}"]))
    text = written.format(number / worth, unit)
    tolerance = 1e-9 + 1e-6 / (number / worth)
    assert understand(text, quantity) == pytest.approx(number, rel=tolerance)


@given(st.text(max_size=250) | st.integers() | st.floats() | st.booleans())
def test_any_value_is_read_or_refused(value):
    for quantity in (TIME, SIZE, SHARE, COUNT, NUMBER):
        try:
            number = understand(value, quantity)
        except Unreadable as why:
            assert str(why)
        else:
            assert shown(number, quantity)


# ---- words and lists

WORDS = [
    ("Compute", "compute"), ("compute-bound", "compute"), ("COMPUTE BOUND", "compute"),
    ("compute_limited", "compute"), ("FLOPs", "compute"), ("memory bandwidth", "memory"),
    ("Memory-bound.", "memory"), (" memory ", "memory"), ("The memory", "memory"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "meant"), WORDS)
def test_a_word_has_other_names(said, meant):
    assert meaning(said, ("compute", "memory")) == meant


@pytest.mark.parametrize(
    "said", ["both", "", 3, ["compute"], True, "x" * 300, "yes", "compute, memory", "compute?"]
)
def test_a_word_that_is_none_of_the_choices_is_told(said):
    with pytest.raises(Unreadable):
        meaning(said, ("compute", "memory"))


@pytest.mark.parametrize(
    ("said", "meant"),
    [(True, "yes"), (False, "no"), ("Yes", "yes"), ("n", "no"), ("No, it does not", "no"),
     ("No; it doesn't.", "no"), ("no – it doesn’t", "no"), ("It doesnt", "no"), ("“Yes!”", "yes"),
     ("Yes, it does.", "yes"), ("(no)", "no")],
)  # fmt: skip
def test_yes_and_no(said, meant):
    assert meaning(said, ("yes", "no")) == meant


CHOICES = [("compute", "memory"), ("yes", "no"), ("pairs", "distance"), ("weights", "activations")]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_who_says_two_has_said_nothing(choices):
    names = [(word, *MEANINGS[word]) for word in choices]
    for pair in [*product(*names), *product(*reversed(names))]:
        for between in (" or ", ", ", " ", "/", " and ", "; ", ". ", " - ", "? ", ", not "):
            with pytest.raises(Unreadable):
                meaning(between.join(pair), choices)


LISTS = [[4, 6, 1], [4.0, "6", 1], "4 6 1", "4, 6, 1", "[4,6,1]", "4;6; 1", "461", 461, "(4 6 1)"]


@pytest.mark.parametrize("said", LISTS, ids=str)
def test_a_list_is_read_in_each_spelling(said):
    digits = Numbers([4, 6, 1], NUMBER, 0, digits=True)
    assert digits.is_right(digits.read(said))


@pytest.mark.parametrize(
    "said", [[4, 6], [4, 6, 1, 1], [6, 4, 1], "4 6", [4, 6, 1.001], 462, [], "41"]
)
def test_a_list_must_have_all_in_order(said):
    digits = Numbers([4, 6, 1], NUMBER, 0, digits=True)
    assert not digits.is_right(digits.read(said))


@pytest.mark.parametrize(
    "said",
    [True, 1.5, {"a": 1}, [[4], [6], [1]], ["a"], [None], [True, 6, 1], [1] * 101, "1 " * 101,
             10**30, float("nan"), [float("nan")] * 3, "four six"],
    ids=lambda v: str(v)[:20],
)  # fmt: skip
def test_what_is_no_list_of_numbers_is_told(said):
    with pytest.raises(Unreadable):
        Numbers([4, 6, 1], NUMBER, 0, digits=True).read(said)


def test_rounding_is_forgiven_and_counts_are_not():
    assert Number(1.005, NUMBER).is_right(1.0) and Number(1.005, NUMBER).is_right(1.01)
    assert not Number(1.0, NUMBER).is_right(1.01)
    assert Count(591, COUNT).is_right(591.0)
    assert not Count(591, COUNT).is_right(590) and not Count(0, COUNT).is_right(0.001)
    assert Number(0, NUMBER).is_right(0)


# ---- whole sheets


def test_the_reference_is_right():
    assert failures(REFERENCE) == {}
    assert failures(REFERENCE, "reference") == {}


@pytest.mark.parametrize("student", [f"t{number}" for number in range(40)])
def test_a_sheet_made_from_the_key_is_right_for_its_student_only(student):
    text = text_of(student, right_answers(student))
    assert failures(text) == {}
    assert len(failures(text_of("ab13", right_answers(student)))) == 10


@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_a_right_sheet_in_another_spelling_is_right(path):
    assert failures(path.read_bytes()) == {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant["name"] for mutant in MUTANTS])
def test_a_wrong_idea_loses_its_question_and_no_other(mutant):
    text = REFERENCE.replace(mutant["old"], mutant["new"])
    question, answer = mutant["name"].partition(":")[0].split()
    found = failures(text)
    assert list(found) == [question]
    assert str(found[question]).startswith(f"{question} {answer}: read ")


def test_line_ends_and_marks_of_other_systems_are_fine():
    assert failures(b"\xef\xbb\xbf" + REFERENCE.replace("\n", "\r\n").encode()) == {}
    assert failures(REFERENCE.replace("\n", "\r").encode()) == {}


# ---- messages


def _every_way(right) -> list[str]:
    """How a message could give a right answer away."""
    if isinstance(right, Word):
        return [repr(right.value)]
    if isinstance(right, Numbers):
        return [", ".join(f"{value:.{digits}g}" for value in right.values) for digits in (2, 3, 4)]
    value = right.value
    return [right.say(value), f"{value:.3g}", f"{value:.4g}", f"{value:,.10g}", str(value)]


def _another(right) -> object:
    if isinstance(right, Word):
        return next((c for c in right.choices if c != right.value), "zebra")
    return [0.123] * 3 if isinstance(right, Numbers) else 0.98765e-7


@pytest.mark.parametrize("name", sheet.QUESTIONS)
def test_a_message_tells_all_but_the_answer(name):
    for student in ("ab12", "t7", "s000042"):
        for sub, right in key(student, name).items():
            if sub == "kept":  # 0 of …: a message on it has a 0 in it
                continue
            answers = {**right_answers(student)[name], sub: _another(right)}
            message = str(failures(text_of(student, {name: answers}))[name])
            assert message.startswith(f"{name} {sub}: read "), message
            assert " as " in message and "\n" not in message
            told_before, _, place = message.partition(f" for student {student}; ")
            assert place.startswith("handout")
            without_place = told_before.partition(": read ")[2]
            for told in _every_way(right):
                whole = rf"(?<![\d.e-]){re.escape(told)}(?!\d)"
                assert not re.search(whole, without_place), (told, message)


def test_a_message_says_how_an_answer_was_read():
    def said(answer):
        return str(failures(text_of(ID, {"q1": {"tpot": answer}}))["q1"])

    place = f", and that is not right for student {ID}; "
    place += "handout accounting, “What users and operators see”"
    assert said("7 ms / token") == f"q1 tpot: read 7 ms / token as 0.007 s per token{place}"
    assert said(7) == f"q1 tpot: read 7 as 7 s per token{place}"
    assert said("7 miles").startswith("q1 tpot: cannot read 7 miles: unit 'miles' is unknown here")


def test_sections_are_those_of_the_handout():
    course = load_course(ROOT / "tests" / "course.toml")
    known = {Section(problem.handout, problem.unit) for problem in course.problems.values()}
    others = (ROOT / "handout" / "given.typ").read_text(encoding="utf-8")
    known |= {Section(title) for title in headings(others)}
    assert {question.source for question in questions(ID)} <= known


def test_a_message_names_the_student_and_what_to_read():
    wrong = {"q6": {"attention": 5}, "q8": {"most": 99}}
    found = failures(text_of(" ZZ-9", right_answers("zz-9") | wrong))
    said = {name: str(error).partition(" not right ")[2] for name, error in found.items()}
    assert said == {
        "q6": "for student zz-9; handout, “A task for memory, and requests for a server”",
        "q8": "for student zz-9; handout speculative, “Verification”",
    }


# ---- what is not answered


@pytest.mark.parametrize("empty", ["", "  ", []])
def test_an_empty_question_is_not_answered(empty):
    right = right_answers(ID)
    right["q4"] = dict.fromkeys(right["q4"], empty)
    [(name, error)] = failures(text_of(ID, right)).items()
    assert name == "q4" and str(error) == f"q4 {UNANSWERED}" and is_unwritten(error)


def test_a_part_that_is_empty_is_not_answered():
    right = right_answers(ID)
    right["q4"]["latent"] = ""
    del right["q8"]["most"]
    found = {name: str(error) for name, error in failures(text_of(ID, right)).items()}
    assert found == {"q4": f"q4 latent {UNANSWERED}", "q8": f"q8 most {UNANSWERED}"}
    assert all(map(is_unwritten, failures(text_of(ID, right)).values()))


def test_a_wrong_part_comes_before_an_empty_one():
    error = failures(text_of(ID, {"q1": {"throughput": 5}}))["q1"]
    assert not is_unwritten(error) and "q1 throughput: read 5" in str(error)


def test_the_empty_sheet_is_not_started():
    found = failures((ROOT / "assignment/review.toml").read_text())
    assert [str(error) for error in found.values()] == [
        f"{q} {UNANSWERED}" for q in sheet.QUESTIONS
    ]


# ---- what cannot be read costs one question

LINES = {  # in the place of q4's line `full = …`: what is said
    "full = 800 KiB": "line 24: not valid TOML: ",
    "full = 819,200": "line 24: not valid TOML: ",
    'full = "819200': "line 24: not valid TOML: ",
    "full 819200": "line 24: not valid TOML: ",
    "full = 1\nfull = 2": "line 25: not valid TOML: ",
    "full = 2026-01-01": "q4 full: cannot read 2026-01-01: a date is no number",
    "full = true": "q4 full: cannot read True: true or false is no number",
    "full = [819200]": "q4 full: cannot read [819200]: a list is no number",
    "full = {a = 1}": "q4 full: cannot read a table: a table is no number",
    "full.a = 1": "q4 full: cannot read a table: a table is no number",
    "full = nan": "q4 full: cannot read nan: it is no finite number",
    "full = inf": "q4 full: cannot read inf: it is no finite number",
    f"full = {10**300}00000000000": "a number of more than 20 digits: it is no finite number",
    f"full = 0x{'f' * 400}": "a number of more than 20 digits: it is no finite number",
    f"full = {'9' * 5000}": "line 24: not valid TOML: it has 5,007 characters",
    f"full = '{'9' * 300}'": "9…: it has 300 characters",
    "full = '800 quarters'": "unit 'quarters' is unknown here; it is wanted in bytes",
    "ful = 819200": "q4: there is no answer ful; is it meant to be full?",
    "zebra = 819200": "q4: there is no answer zebra, only full, grouped, latent, ratio, heads",
    f"full = {'[' * 400}": "not valid TOML: ",
    "full = " + "[\n" * 20_000: "not valid TOML: brackets without end",
    "full." + "a." * 200 + "a = 1": "q4 full: cannot read a table: a table is no number",
    f"full = {'[' * 90}{']' * 90}": "q4 full: cannot read [a list]: a list is no number",
    "full = \x00": "not valid TOML: ",
}  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=lambda line: ascii(line)[:30])
def test_an_answer_that_cannot_be_read_costs_its_question(line):
    text = text_of(ID, right_answers(ID))
    old = re.search(r"^full = .*$", text, re.MULTILINE)[0]
    assert text[: text.index(old)].count("\n") == 23
    [(name, error)] = failures(text.replace(old, line)).items()
    assert name == "q4" and LINES[line] in str(error) and not is_unwritten(error)
    assert str(error).startswith("q4") and len(str(error)) < 400


def test_a_table_that_is_missing_or_misspelled_costs_its_question():
    text = text_of(ID, right_answers(ID))
    for new in ("[Q4]", "[q 4]", "[question4]", "[[q4]]", "[q4.answers]", "q4]", "[q4", "[q3]"):
        found = failures(text.replace("[q4]", new))
        assert "q4" in found and set(found) <= {"q3", "q4"}, new  # what follows falls to q3
    assert "is [Q4] meant to be it?" in str(failures(text.replace("[q4]", "[Q4]"))["q4"])
    start, end = text.index("[q4]"), text.index("[q5]")
    assert str(failures(text[:start] + text[end:])["q4"]) == "q4: there is no table [q4]"
    assert list(failures(text + text[start:end])) == ["q4"]
    assert list(failures("q4 = 3\n" + text[:start] + text[end:])) == ["q4"]


def test_an_unknown_question_costs_nothing():
    assert failures(text_of(ID, right_answers(ID)) + "\n[q11]\nx = 1\n[notes]\nok = true\n") == {}


def test_what_is_wrong_in_one_place_hides_nothing_in_another():
    text = text_of(ID, right_answers(ID) | {"q2": {"chip": "raw:295 FLOP"}, "q9": {"apart": 5}})
    found = failures(text)
    assert list(found) == ["q2", "q9"]
    assert "a text stands in quotes" in str(found["q2"]) and "q9 apart: read 5" in str(found["q9"])


@pytest.mark.parametrize(
    ("student", "said"),
    [("", "whose sheet is it? `student` is empty"), ("a/b", "`student` is a/b: a student id has"),
     ("raw:[1]", "must be your id in quotes"), ("raw:true", "must be your id in quotes"),
     ("raw:S012", "the sheet's head: line 1: not valid TOML"), ("x" * 70, "1 to 64 letters")],
)  # fmt: skip
def test_a_sheet_without_an_id_says_so(student, said):
    found = failures(text_of(student, right_answers(ID)))
    assert len(found) == 10 and len({str(error) for error in found.values()}) == 1
    assert said in str(found["q1"]) and not is_unwritten(found["q1"])


def test_an_id_may_be_a_number():
    assert failures(text_of(1234, right_answers("1234"))) == {}


def test_the_grader_s_id_decides():
    text = text_of(" AB 12", right_answers(ID))
    assert failures(text, "ab12") == {} == failures(text, "AB 12")
    found = failures(text, "ab13")
    assert {str(error) for error in found.values()} == {
        "the sheet is of student ab12, and ab13 is graded"
    }
    assert len(found) == 10


HOSTILE = {
    "brackets": b"a = " + b"[" * 60_000,
    "dots": b"a." * 30_000 + b"a = 1",
    "tables": b"[q1]\n" * 12_000,
    "open brackets": b"[\n" * 30_000,
    "quotes": b"a = '" + b'"' * 60_000,
    "keys": b"".join(b"k%d = 1\n" % n for n in range(5000)),
    "nuls": b"\0" * 60_000,
    "noise": bytes(range(256)) * 200,
    "a megabyte": b"#" * 2**20,
    "a long line": b"[q1]\nttft = '" + b"9" * 60_000 + b"'",
    "spaces": b"[q1]\nttft = '" + b"9 " * 30_000 + b"'",
    "not a table": b"q1 = 1\nq2 = [1]\nq3 = true\n[[q4]]\na = 1\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_only_wrong(name):
    found = failures(b'student = "ab12"\n' + HOSTILE[name])
    assert len(found) == 10
    for error in found.values():
        assert len(str(error)) < 500 and "\n" not in str(error)


@settings(deadline=None)
@given(st.text(max_size=300), st.integers(0, 2000), st.integers(0, 200))
def test_a_damaged_sheet_is_read_or_refused(junk, at, gone):
    text = text_of(ID, right_answers(ID))
    failures((text[:at] + junk + text[at + gone :]).encode(errors="surrogatepass"))
