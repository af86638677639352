"""report.html: one file that opens anywhere, loads nothing, and shows hostile text as text."""

from __future__ import annotations

import functools
import os
import re
from fractions import Fraction
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from tests.grading.page.through_line import view_through_line
from tests.grading.page.view import strip, tone, view_units
from tests.grading.report import Report
from tests.grading.results import LONGEST_MESSAGE, LONGEST_NAME, write_whole
from tests.grading.submission import REPOSITORY
from tests.grading.tiers import LIMITS
from tests.grading.wording import clean, day, moment, one_line, plural, points

HANDOUT = REPOSITORY / "handout" / "handout.pdf"
MARKS = {"good": "✓", "some": "~", "bad": "✗", "rest": "·", "fault": "!"}
NOTES = 20  # lines about the files handed in
FOLD_ABOVE = 6  # problems: a longer report folds those that are full


def write_html(report: Report, path: Path | str) -> None:
    """Write report.html, making its folder. It links to the handout where there is one."""
    write_whole(render(report, _handout_from(Path(path).parent)), path)


def render(report: Report, handout: str = "") -> str:
    """The page. Everything in it that is not ours is escaped by the template engine.

    Args:
        handout: address of the handout's PDF, as seen from the page; no links to it if empty.
    """
    step = report.next_step
    return _template().render(
        report=report,
        units=view_units(report, handout),
        step_handout=f"{handout}#nameddest={step.problem}" if handout and step else "",
        step_section=report.course.problems[step.problem].handout if step else "",
        strip=strip(report.counted),
        line=view_through_line(report),
        at_most=sum((score.at_most for score in report.counted), Fraction(0)),
        limits=", ".join(f"{step.value} to {float(limit):g}×" for step, limit in LIMITS.items()),
        fold_above=FOLD_ABOVE,
        notes=report.run.notes[:NOTES],
        more_notes=max(len(report.run.notes) - NOTES, 0),
    )


def _handout_from(folder: Path) -> str:
    if not HANDOUT.is_file():
        return ""
    try:
        return quote(Path(os.path.relpath(HANDOUT, folder.resolve())).as_posix())
    except ValueError:  # on another drive
        return ""


def _may_break(path: str) -> Markup:
    """A path or test's name that breaks between its parts before it breaks within one."""
    return Markup(re.sub(r"(?<=\w)(/|::)", r"\1<wbr>", str(escape(path))))


@functools.cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "points": points,
        "day": day,
        "moment": moment,
        "name": lambda text: one_line(text, LONGEST_NAME),
        "message": lambda text: clean(text, LONGEST_MESSAGE),
        "breaks": _may_break,
        "tone": tone,
        "mark": MARKS.__getitem__,
        "plural": plural,
    }
    return environment.get_template("report.html.jinja")
