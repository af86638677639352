"""The review's numbers and key, over many student ids."""

from __future__ import annotations

import math
from functools import partial
from itertools import combinations

import pytest

from assignment.provided.review import normalised, questions
from assignment.provided.review.questions import WRITERS, drawn
from assignment.provided.review.student import Chance
from tests.accounting.review.expected import Number, Numbers, Word
from tests.accounting.review.key import key
from tests.accounting.review.sheet import QUESTIONS
from tests.staff import review_ideas as ideas

IDS = [f"s{number:06}" for number in range(500)]
FEW = IDS[:100]
HANDS = ("x", "ab12", "jane.doe@uni.example", "0007")


@pytest.mark.parametrize("student", HANDS)
def test_every_question_is_asked_and_answered(student):
    asked = {question.name: [ask.key for ask in question.asks] for question in questions(student)}
    assert tuple(asked) == QUESTIONS == tuple(WRITERS)
    assert asked == {name: list(key(student, name)) for name in QUESTIONS}


@pytest.mark.parametrize("name", QUESTIONS)
def test_all_ids_get_questions_that_are_well_defined(name):
    for student in IDS:
        for sub, right in key(student, name).items():
            if isinstance(right, Number):
                assert math.isfinite(right.value)
                assert right.value > 0 or sub == "kept"
            elif isinstance(right, Numbers):
                assert all(map(math.isfinite, right.values)) and len(set(right.values)) > 1
            else:
                assert isinstance(right, Word) and right.value


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_answer_would_do_for_another_one_of_the_same_question(name):
    """Else one who mixes them up would not notice. Only what is the same for all ids may agree."""
    constant = {"batch", "threshold", "fp8", "kept"}
    for student in IDS:
        found = key(student, name).items()
        numbers = {sub: e for sub, e in found if isinstance(e, Number) and sub not in constant}
        for (one, a), (other, b) in combinations(numbers.items(), 2):
            if a.quantity is b.quantity:
                assert not a.is_right(b.value), (student, one, other)


def test_ids_get_different_numbers():
    sheets = {str([drawn(student, name) for name in QUESTIONS]) for student in IDS}
    assert len(sheets) == len(IDS)
    for name in QUESTIONS:
        assert len({str(drawn(student, name)) for student in IDS}) > 40


def test_the_numbers_of_an_id_stay_what_they_are():
    """Across machines and Pythons: a student's sheet must not change in the middle of a term."""
    assert [Chance("ab12", "q1").pick(range(1000)) for _ in range(2)] == [70, 70]
    numbers = drawn("ab12", "q1")
    assert vars(numbers) == vars(drawn(" AB 12 ", "q1"))
    chance = Chance("ab12", "q10")
    assert sorted(chance.several(range(5), 5)) == list(range(5))


@pytest.mark.parametrize(
    ("given", "id"),
    [("S 012 345", "s012345"), (" Ab12\n", "ab12"), ("Jörg", "jörg"), ("ＡＢ１", "ab1"),
     ("A.B-c_d+e@f", "a.b-c_d+e@f")],
)  # fmt: skip
def test_an_id_is_one_however_it_is_spelled(given, id):
    assert normalised(given) == id == normalised(id)


@pytest.mark.parametrize("given", ["", "  ", "a" * 65, "a/b", 'a"b', "a\\b", "a\x00b", "x" * 10**6])
def test_what_is_no_id_is_refused(given):
    with pytest.raises(ValueError, match="1 to 64 letters"):
        normalised(given)


def is_right(student: str, name: str, answers: dict) -> None:
    """Every answer that a second computation gives is right."""
    right = key(student, name)
    for sub, answer in answers.items():
        assert right[sub].is_right(right[sub].read(answer)), (student, name, sub, answer)


def second(name: str, n) -> dict:
    """Answers computed another way, by loops and enumeration."""
    if name == "q6":
        shown = "".join(f"{letter}{digit}" for letter, digit in n.pairs)
        return {"digits": [int(shown[shown.index(letter) + 1]) for letter in n.asked]}
    if name == "q7":
        scale, codes, errors = ideas.absmax_codes(n.values)
        _, outlier_codes, outlier_errors = ideas.absmax_codes(n.with_outlier)
        errors[n.place] = outlier_errors[n.place] = 0
        worst, outlier_worst = errors.max().item(), outlier_errors.max().item()
        return {"scale": scale, "codes": codes, "error": worst,
                "outlier_codes": outlier_codes, "outlier_error": outlier_worst}  # fmt: skip
    if name == "q8":
        residual, accepted, out = ideas.law_of_a_draft(n)
        tokens = ideas.tokens_of_a_round(n)
        return {"residual": residual, "acceptance": accepted, "output": out, "tokens": tokens,
                "speedup": tokens / (1 + n.num_draft * n.cost)}  # fmt: skip
    if name == "q9":
        return {"shared": ideas.blocks_in_use(n, shares=True),
                "apart": ideas.blocks_in_use(n, shares=False),
                "useful": ideas.useful_share(n)}  # fmt: skip
    widest = max(n.lengths)
    padded = [[column < length for column in range(widest)] for length in n.lengths]
    return {
        "rows": sum(map(sum, padded)), "padded_rows": sum(map(len, padded)),
        "scores": sum(sum(row) * sum(row) for row in padded),
        "padded_scores": sum(len(row) ** 2 for row in padded),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["q6", "q7", "q8", "q9", "q10"])
def test_the_key_agrees_with_a_second_computation(name):
    for student in FEW:
        is_right(student, name, second(name, drawn(student, name)))


def test_the_key_agrees_with_the_reference_s_metrics():
    metrics = pytest.importorskip("solutions.accounting.metrics")
    for student in FEW[:20]:
        n = drawn(student, "q1")
        found = metrics.timelines(ideas.requests_of(n))
        later = sum(len(line.tokens) - 1 for line in found.values())
        answers = {
            "ttft": metrics.time_to_first_token(found[0]),
            "tpot": metrics.time_per_output_token(found[0]),
            "throughput": metrics.throughput(found.values()),
            "decode": later / (found[0].tokens[-1] - found[0].tokens[0]),
        }
        is_right(student, "q1", answers)


def test_the_key_agrees_with_the_reference_s_intensities():
    lab = pytest.importorskip("solutions.accounting.intensity")
    for student in FEW:
        n = drawn(student, "q2")
        chip = ideas.chip_of(n)
        cost = lab.mlp(n.tokens, n.d_model, n.d_ff)
        answers = {
            "chip": n.flops_per_second / n.bandwidth,
            "mlp": lab.intensity(cost),
            "mlp_limit": lab.limited_by(cost, chip),
            "mlp_from": lab.smallest_compute_limited(
                partial(lab.mlp, d_model=n.d_model, d_ff=n.d_ff), chip
            ),
            "attention_from": lab.smallest_compute_limited(
                lambda s: lab.attention(1, s, s, 8, 8, 128), chip
            ),
        }
        is_right(student, "q2", answers)
        n = drawn(student, "q3")
        of = {
            (kv_heads, batch): lab.intensity(
                lab.attention(batch, 1, n.length, n.num_heads, kv_heads, 128)
            )
            for kv_heads in (n.num_heads, n.num_kv_heads, 1)
            for batch in (1, 2)
        }
        far = lab.attention(1, 1, 10**9, n.num_heads, n.num_kv_heads, 128)
        answers = {
            "all": of[n.num_heads, 1], "some": of[n.num_kv_heads, 1], "one": of[1, 1],
            "batch": of[1, 2] / of[1, 1], "limit": lab.intensity(far),
        }  # fmt: skip
        is_right(student, "q3", answers)


def test_the_key_agrees_with_the_reference_s_bytes():
    lab = pytest.importorskip("solutions.accounting.memory")
    AttentionLayer, config = ideas.AttentionLayer, ideas.config
    for student in FEW:
        n = drawn(student, "q4")
        latent = AttentionLayer(latent_dim=n.latent_dim, rope_dim=n.rope_dim)
        full = config(n.latent_layers, n.latent_heads, n.latent_heads, 128)
        one = config(n.latent_layers, 1, 1, 128)
        stored = lab.kv_bytes_per_token(
            config(n.latent_layers, n.latent_heads, n.latent_heads, 128, [latent] * n.latent_layers)
        )
        sizes = (n.num_layers, n.num_heads)
        answers = {
            "full": lab.kv_bytes_per_token(config(*sizes, n.num_heads, n.head_dim)),
            "grouped": lab.kv_bytes_per_token(config(*sizes, n.num_kv_heads, n.head_dim)),
            "latent": stored,
            "ratio": lab.kv_bytes_per_token(full) / stored,
            "heads": stored / lab.kv_bytes_per_token(one),
        }
        is_right(student, "q4", answers)
        n = drawn(student, "q5")
        plain = config(n.num_layers, n.num_kv_heads, n.num_kv_heads, 128)
        everything = lab.kv_bytes(plain, [n.length])
        mixed = lab.kv_bytes(ideas.windows_config(n, 1), [n.length])
        shared = lab.kv_bytes(ideas.windows_config(n, 2), [n.length])
        answers = {"global": everything, "mixed": mixed, "ratio": everything / mixed}
        is_right(student, "q5", answers | {"shared": shared})
        n = drawn(student, "q6")
        layers = (n.num_layers, n.num_layers // n.every)
        both = [config(count, n.num_kv_heads, n.num_kv_heads, 128) for count in layers]
        bytes_of = [lab.kv_bytes(each, [n.length]) for each in both]
        is_right(student, "q6", dict(zip(("attention", "hybrid"), bytes_of, strict=True)))


@pytest.mark.parametrize(
    ("name", "sub", "wrong"),
    [(name, sub, wrong) for name, sub, _, wrong in ideas.WRONG],
    ids=[f"{name}-{sub}-{idea}" for name, sub, idea, _ in ideas.WRONG],
)
def test_a_wrong_idea_is_wrong_for_every_id(name, sub, wrong):
    """Also with three digits: its answer is out of reach of the rounding that is allowed."""
    for student in FEW:
        right, answer = key(student, name)[sub], wrong(drawn(student, name))
        read = right.read(answer)
        assert not right.is_right(read), (student, answer)
        if isinstance(read, float):
            assert not right.is_right(right.read(f"{read:.3g}")), (student, answer)


@pytest.mark.parametrize("name", QUESTIONS)
def test_three_digits_are_enough(name):
    for student in FEW:
        for sub, right in key(student, name).items():
            if type(right) is Number:
                assert right.is_right(right.read(f"{right.value:.3g}")), (student, sub)
            elif isinstance(right, Numbers) and right.tolerance:
                assert right.is_right(right.read([f"{value:.3g}" for value in right.values]))
