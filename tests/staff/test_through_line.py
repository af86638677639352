"""The through-line: its figures are right, and solving a problem moves the student's dot."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise

import pytest

from tests.grading.course import load_course
from tests.grading.html import render
from tests.grading.page import through_line as page
from tests.grading.scoring import score
from tests.staff.authoring import through_line as authoring
from tests.staff.authoring.source import ROOT
from tests.staff.browser import CHROMIUM, examine
from tests.staff.samples import RUN, record, small_course

NAMES = [technique.name for technique in authoring.TECHNIQUES]
PROBLEMS = {technique.name: technique.problem for technique in authoring.TECHNIQUES}
LINE = page.load(page.FILE)


def every_choice(names):
    return [set(chosen) for size in range(len(names) + 1) for chosen in combinations(names, size)]


def line_course(folder):
    """The problems of the through-line, and one that is none of its."""
    lines = ['title = "A line"', "[units.attention]", 'title = "Attention"']
    for problem in [*PROBLEMS.values(), "attention.generate"]:
        lines += [f'[problems."{problem}"]', f'title = "{problem}"', 'track = "core"', "points = 1"]
        lines += ['handout = "H"', "groups = { works = 1 }"]
    return small_course(folder, "\n".join(lines))


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return line_course(tmp_path_factory.mktemp("line"))


def report_of(course, earned, problems=None):
    """A report in which the problems of the `earned` techniques are full, and no others."""
    full = {PROBLEMS[name] for name in earned}
    names = [name for name in course.problems if problems is None or name in problems]
    records = [record(name, "works", "passed" if name in full else "failed") for name in names]
    return score(course, records, RUN, problems=names)


def picture_of(course, earned, problems=None):
    return page.view_through_line(report_of(course, earned, problems))


# The figures.

MATRICES = 2 * 32_000 * 5120 + 40 * (3 * 5120 * 13_824 + 2 * 5120 * 5120)  # but for keys, values
HEAD = 2 * 5120 * 128  # a KV head's projections in a layer
MLA = 5120 * (40 * 64 + 512 + 64) + 2 * 512 * 5120  # what a latent layer has in their place
BY_HAND = {  # weights, numbers kept of 4096 tokens, numbers read of them
    ("cache",): (MATRICES + 40 * 40 * HEAD, *2 * [4096 * 40 * 40 * 256]),
    ("cache", "grouped"): (MATRICES + 40 * 8 * HEAD, *2 * [4096 * 40 * 8 * 256]),
    ("cache", "latent"): (MATRICES + 40 * MLA, *2 * [4096 * 40 * 576]),
    ("cache", "window"): (MATRICES + 40 * 40 * HEAD, *2 * [(7 * 4096 + 33 * 1024) * 40 * 256]),
    ("cache", "shared"): (
        MATRICES + 20 * 40 * HEAD,
        4096 * 20 * 40 * 256,
        4096 * 40 * 40 * 256,
    ),
    tuple(NAMES): (
        MATRICES + 7 * MLA + 17 * 8 * HEAD,
        7 * 4096 * 576 + 17 * 1024 * 8 * 256,
        7 * 4096 * 576 + 33 * 1024 * 8 * 256,
    ),
}


@pytest.mark.parametrize("techniques", BY_HAND)
def test_figures_are_those_computed_by_hand(techniques):
    weights, kept, read = BY_HAND[techniques]
    design = LINE.best(techniques)
    assert design.techniques == set(techniques)
    most = int((80e9 - 2 * weights) // (2 * kept))
    assert design.weight_bytes == pytest.approx(2 * weights, rel=1e-5)
    assert design.kv_bytes_per_sequence == pytest.approx(2 * kept, rel=1e-5)
    assert design.largest_batch == most
    latency = 2 * (weights + 16 * read) / 3.35e12
    assert design.latency == pytest.approx(latency, rel=1e-5)
    full = 2 * (weights + most * read) / 3.35e12
    assert design.throughput == pytest.approx(most / full, rel=1e-5)


def test_without_a_cache_each_token_costs_a_pass_over_16_whole_sequences():
    start = LINE.best([])
    weights = MATRICES + 40 * 40 * HEAD
    pairs = 4096 * 4097 // 2
    head, table = 2 * 32_000 * 5120, 2 * 32_000 * 5120
    flops = 16 * (4096 * 2 * (weights - table) + head + pairs * 40 * 40 * 4 * 128)
    assert start.latency == pytest.approx(flops / 989e12, rel=1e-5)
    assert start.throughput == pytest.approx(16 / start.latency, rel=1e-5)
    assert (start.largest_batch, start.kv_bytes_per_sequence) == (None, 0)


def test_every_problem_of_the_trail_moves_it_in_the_courses_order():
    trail = [LINE.best(NAMES[:number]) for number in range(len(NAMES) + 1)]
    for before, after in pairwise(trail):
        assert after.throughput > 1.1 * before.throughput
        assert after.latency < before.latency


def test_a_student_is_never_beyond_what_they_have_solved():
    for earned in every_choice(NAMES):
        best = LINE.best(earned)
        assert best.techniques <= earned
        for name in earned:
            less = LINE.best(earned - {name})
            assert less.throughput <= best.throughput
            assert name not in less.techniques


def test_the_designs_are_the_best_of_every_choice():
    for earned in every_choice(NAMES):
        made = [authoring.figures(authoring.setup(chosen)) for chosen in every_choice(earned)]
        best = max(figures.throughput for figures in made)
        assert LINE.best(earned).throughput == pytest.approx(best, rel=1e-5)


# The file.


def test_the_file_is_current(capsys):
    assert authoring.main(["--check"]) == 0, capsys.readouterr().out


def test_check_tells_and_writes_nothing(tmp_path, capsys):
    (tmp_path / authoring.FILE).parent.mkdir(parents=True)
    (tmp_path / "tests" / "course.toml").write_bytes((ROOT / "tests" / "course.toml").read_bytes())
    assert authoring.main(["--check"], tmp_path) == 1
    assert "run `python -m tests.staff.authoring.through_line`" in capsys.readouterr().out
    assert not (tmp_path / authoring.FILE).exists()
    assert authoring.main([], tmp_path) == 0 and authoring.main(["--check"], tmp_path) == 0


def test_a_technique_whose_problem_the_course_lacks_is_not_in_the_file(tmp_path, course):
    text = (ROOT / "tests" / "course.toml").read_text(encoding="utf-8")
    (tmp_path / "tests").mkdir()
    without = re.sub(r'\[problems."attention.latent"\].*?(?=\n\[|\Z)', "", text, flags=re.DOTALL)
    (tmp_path / "tests" / "course.toml").write_text(without, encoding="utf-8")
    data = json.loads(authoring.content(tmp_path))
    assert [technique["name"] for technique in data["techniques"]] == [
        name for name in NAMES if name != "latent"
    ]
    assert all("latent" not in design["techniques"] for design in data["designs"])


def test_every_technique_belongs_to_a_problem_of_the_course_in_its_order():
    order = list(load_course(ROOT / "tests" / "course.toml").problems)
    places = [order.index(problem) for problem in PROBLEMS.values()]
    assert places == sorted(places)


# The picture.


def test_solving_a_problem_moves_your_dot_to_the_next_station(course):
    for number in range(len(NAMES) + 1):
        picture = picture_of(course, NAMES[:number])
        assert picture.station == picture.walked == number
        assert picture.here == picture.stations[number].dot
        assert picture.you == picture.stations[number].figures
        assert [station.earned for station in picture.stations[1:]] == [
            name in NAMES[:number] for name in NAMES
        ]
    dots = [picture_of(course, NAMES[:number]).here for number in range(len(NAMES) + 1)]
    assert len({(dot.x, dot.y) for dot in dots}) == len(dots)
    for before, after in pairwise(dots):
        assert after.x < before.x and after.y < before.y  # faster, and more


def test_what_is_solved_out_of_order_is_drawn_beside_the_trail(course):
    picture = picture_of(course, {"cache", "window"})
    assert picture.station is None and picture.walked == 1
    assert picture.used == ("KV cache", "sliding windows")
    assert picture.here not in [station.dot for station in picture.stations]
    assert (picture.next.title, picture.next.used) == (
        "GQA",
        ("KV cache", "GQA", "sliding windows"),
    )
    assert picture.you.sequences == "42"
    assert picture_of(course, {"cache", "latent"}).next is None  # no other helps by itself


def test_dots_lie_in_the_picture_and_their_areas_are_in_proportion_to_the_cache(course):
    for earned in every_choice(NAMES):
        picture = picture_of(course, earned)
        for dot in (picture.here, *(station.dot for station in picture.stations)):
            assert 0 < dot.x < 100 and 0 < dot.y < 100
            assert (dot.x > page.SHOWN) == dot.beyond
    one, two = (picture_of(course, NAMES[:n]).here.radius for n in (1, 2))
    assert one == page.LARGEST and (one / two) ** 2 == pytest.approx(5, rel=0.03)


@pytest.mark.parametrize(
    ("end", "ticks"), [(25.2, [5, 10, 15, 20, 25]), (17_045, [5000, 10_000, 15_000]), (6.9, None)]
)
def test_ticks_are_round_numbers_inside_the_picture(end, ticks):
    steps = page._steps(end)
    assert steps == (ticks or [1, 2, 3, 4, 5, 6])


def text_of(html):
    """What stands in the through-line's card, without tags."""
    card = re.search(r'<section class="card through".*?</section>', html, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", card[0]).split()) if card else None


def test_the_page_says_it_in_words(course):
    text = text_of(render(report_of(course, NAMES[:2])))
    assert "Your best design so far: KV cache, GQA." in text
    assert "With 16 sequences of 4,096 tokens, a token takes 1,793 → 9.97 ms" in text
    assert "the card gives 8.93 → 3,572 tokens a second" in text
    ahead = "your best design would be KV cache, latent attention: 7.93 ms, 12,525 tokens a second."
    assert f"With latent attention {ahead}" in text  # it takes the place of GQA
    out_of_order = text_of(render(report_of(course, ["latent", "window", "shared"])))
    assert "so far: latent attention, sliding windows, shared layers." in out_of_order
    assert f"With KV cache {ahead}" in out_of_order
    start, end = (text_of(render(report_of(course, earned))) for earned in ([], NAMES))
    assert "You are at the start: no cache." in start and "→ 1,793" not in start
    assert "15,782 tokens a second" in end and "would be" not in end


def test_a_problem_that_is_not_full_earns_nothing(course):
    half = [record(name, "works") for name in course.problems]
    half.append(record("attention.kv_cache", "works", "failed", number=1))
    assert "KV cache" not in page.view_through_line(score(course, half, RUN)).used


def test_what_is_not_graded_is_not_drawn(course, tmp_path):
    some = [PROBLEMS["cache"], PROBLEMS["window"]]
    picture = picture_of(course, {"cache"}, some)
    assert [station.title for station in picture.stations] == [
        "no cache", "KV cache", "sliding windows",
    ]  # fmt: skip
    assert picture_of(course, {"latent"}, [PROBLEMS["latent"]]) is None
    assert picture_of(course, set(), ["attention.generate"]) is None
    assert text_of(render(report_of(course, {"latent"}, [PROBLEMS["latent"]]))) is None
    assert page.view_through_line(score(small_course(tmp_path), [], RUN)) is None


def test_a_page_needs_neither_the_figures_nor_every_technique(course, monkeypatch, tmp_path):
    monkeypatch.setattr(page, "FILE", tmp_path / "none.json")
    assert text_of(render(report_of(course, NAMES))) is None
    data = json.loads(authoring.content())
    data["techniques"] = [t for t in data["techniques"] if t["name"] != "latent"]
    data["designs"] = [d for d in data["designs"] if "latent" not in d["techniques"]]
    monkeypatch.setattr(page, "FILE", tmp_path / "fewer.json")
    page.FILE.write_text(json.dumps(data))
    picture = picture_of(course, NAMES)
    assert len(picture.stations) == len(NAMES)
    assert "latent attention" not in text_of(render(report_of(course, NAMES)))


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium on PATH to look with")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_width_and_can_be_read(course, tmp_path, scheme):
    choices = {"none": [], "beside": ["cache", "window"], "all": NAMES}
    pages = {name: render(report_of(course, earned)) for name, earned in choices.items()}
    widths = [360, 800, 1600]
    looks = examine(pages, widths, tmp_path, scheme)
    assert len(looks) == 2 * len(pages) * len(widths)
    for look in looks:
        where = look["page"], look["width"], look["folded"]
        assert look["scroll"] <= look["width"] and look["outside"] == [], where
        assert look["overlapping"] == [] and look["dead"] == [], where
        assert look["faintest"][0] >= 4.5, (where, look["faintest"])
