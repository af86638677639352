"""report.html in a browser: fits every width, can be read in light and dark, loads nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.image import imread

from tests.grading.html import render
from tests.grading.records import Finding, Place
from tests.grading.scoring import score
from tests.staff.browser import CHROMIUM, examine, finish, open_page
from tests.staff.samples import (
    CACHE,
    HOSTILE,
    RUN,
    figure,
    large_course,
    mixed_run,
    perfect_run,
    record,
    small_course,
    started,
    with_,
)

WIDTHS = [360, 900, 1600]
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium on PATH to look with")


def long_texts():
    """A run whose every text is one long word, or hostile."""
    word = "w" * 300
    finding = Finding(word, f"{word} 0, token 1", word, HOSTILE, word, Place(word, 3, word, word))
    return with_(
        started(),
        record(CACHE, "ragged", "failed", f"{word}\n{word}", details=f"{word}\n{HOSTILE}" * 9),
        record(CACHE, "append", "failed", word, finding=finding, details=word),
        record(CACHE, "calls", "failed", measured=figure(10**30, 7, "calls", beside={word: 1e9})),
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    small = small_course(tmp_path_factory.mktemp("small"))
    large = large_course(tmp_path_factory.mktemp("large"))
    stubs = [replace(r, outcome="failed", unwritten=True, figure=None) for r in mixed_run()]
    notes = ("left out: attention/" + "x" * 200, "renamed: A.py to a.py")
    run = replace(RUN, notes=notes, walls={"user": "", "network": "not permitted " * 20})
    return {
        "mixed": render(score(large, mixed_run(), run), "../handout.pdf"),
        "stubs": render(score(large, stubs, run)),
        "full": render(score(small, perfect_run(), RUN)),
        "long": render(score(small, long_texts(), replace(run, submission="s" * 400))),
    }


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request, pages, tmp_path_factory):
    """(scheme, what was seen of each page at each width)."""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, examine(pages, WIDTHS, folder, request.param)


def test_nothing_is_wider_than_the_page(seen):
    assert len(seen[1]) == 4 * len(WIDTHS) * 2
    for look in seen[1]:
        where = look["page"], look["width"], look["folded"]
        assert look["width"] in WIDTHS and look["texts"] > 20
        assert look["scroll"] <= look["width"], where
        assert look["outside"] == [], where


def test_no_text_lies_on_another(seen):
    for look in seen[1]:
        assert look["overlapping"] == [], (look["page"], look["width"], look["folded"])


def test_every_text_has_contrast(seen):
    for look in seen[1]:
        assert look["faintest"][0] >= LEAST_CONTRAST, (look["page"], look["faintest"])


def test_the_page_follows_the_colour_scheme(seen):
    scheme, looks = seen
    for look in looks:
        assert look["background"] > 0.8 if scheme == "light" else look["background"] < 0.05


def test_nothing_is_loaded_and_every_link_leads_somewhere(seen):
    for look in seen[1]:
        assert look["resources"] == 0
        assert look["dead"] == []
        assert len(set(look["ids"])) == len(look["ids"])


def test_score_and_next_step_come_first_and_the_overview_moves_beside(seen):
    for look in seen[1]:
        places = look["places"]
        if look["page"] == "full":
            continue
        assert places["header"]["top"] < 100 and places["header"]["top"] <= places["next"]["top"]
        if look["width"] == 1600:
            assert places["nav"]["right"] < places["main"]["left"]
            assert places["nav"]["height"] <= 800
        else:
            assert places["next"]["bottom"] < places["nav"]["top"]
            assert places["nav"]["bottom"] < places["main"]["top"]


def test_the_page_opens_as_it_is_and_can_be_pictured(pages, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(pages["mixed"], encoding="utf-8")
    dump = open_page(file.as_uri(), tmp_path, "--dump-dom")
    dom, console = finish(dump)
    assert console == [] and dom.count("</article>") == pages["mixed"].count("</article>") > 10
    shots = {}
    for width in WIDTHS:
        started = {}
        for scheme in ("light", "dark"):
            picture = tmp_path / f"{width}-{scheme}.png"
            flags = f"--window-size={width},700", f"--screenshot={picture}"
            started[picture] = open_page(file.as_uri(), tmp_path, *flags, scheme=scheme)
        for picture, browser in started.items():
            assert finish(browser)[1] == []
            shots[picture.stem] = imread(picture)
    for name, picture in shots.items():
        width, scheme = name.split("-")
        assert picture.shape[:2] == (700, int(width))
        assert (picture[..., :3].mean() > 0.5) == (scheme == "light")
        assert picture[..., :3].std() > 0.05  # something is drawn
