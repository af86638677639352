"""report.html: one file that opens anywhere, loads nothing, and shows hostile text as text."""

from __future__ import annotations

import functools
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from tests.grading.chart import cost_chart
from tests.grading.report import Report
from tests.grading.results import LONGEST_DETAILS, LONGEST_MESSAGE, LONGEST_NAME, write_whole
from tests.grading.tiers import LIMITS
from tests.grading.wording import clean, day, one_line, plural, points

MARKS = {"passed": "✓", "partial": "~", "failed": "✗", "unwritten": "·"}  # else: !
SUMMARY = 200  # characters of a message before it is unfolded
LISTED = 30  # tests named per failure


def write_html(report: Report, path: Path | str) -> None:
    """Write report.html, making its folder."""
    write_whole(render(report), path)


def render(report: Report) -> str:
    """The page. Everything in it that is not ours is escaped by the template engine."""
    shown = report.shown
    return _template().render(
        report=report,
        units=[
            (unit, [(s, shown[s.problem.name]) for s in report.problems if s.problem.unit == name])
            for name, unit in report.course.units.items()
        ],
        listed=LISTED,
        limits=", ".join(f"up to {float(limit):g}× {step.value}" for step, limit in LIMITS.items()),
    )


@functools.cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "points": points,
        "day": day,
        "line": lambda text: one_line(text, SUMMARY),
        "name": lambda text: one_line(text, LONGEST_NAME),
        "message": lambda text: clean(text, LONGEST_MESSAGE),
        "details": lambda text: clean(text, LONGEST_DETAILS),
        "mark": lambda state: MARKS.get(state, "!"),
        "plural": plural,
        "chart": cost_chart,
    }
    return environment.get_template("report.html.jinja")
