"""Which entries of a submission become which files of the tree. Pure, on names alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.grading.course import Course
from tests.grading.intake.archives import ENDINGS
from tests.grading.intake.doubles import Claim, settle
from tests.grading.intake.entries import FILE, FOLDER, Entry
from tests.grading.intake.left_out import left_out
from tests.grading.intake.missing import missing
from tests.grading.intake.names import ENVIRONMENT, Parts, fault_of, is_noise, split
from tests.grading.intake.notes import About, Note, listed, show, told
from tests.grading.intake.roots import RULE, Root, find_root
from tests.grading.intake.targets import target_of

Item = tuple[Parts, Entry]


@dataclass(frozen=True)
class Choice:
    """Target ("attention/kv_cache.py") → entry, and what to say about the rest."""

    root: Parts = ()
    files: dict[str, Entry] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    archives: list[Entry] = field(default_factory=list)  # inside, where no file was found
    top: list[str] = field(default_factory=list)  # names at the top, for a person to recognise


def choose(entries: Iterable[Entry], course: Course) -> Choice:
    notes: list[Note] = []
    items = _items(entries, notes)
    root = find_root([parts for parts, entry in items if entry.kind == FILE], course)
    if root is None:
        return _nothing(items, notes, course)
    claims, rest = defaultdict(list), []
    for parts, entry in items:
        target = target_of(parts, root, course) if entry.kind == FILE else None
        if target:
            claims[target.casefold()].append(Claim(target, _relative(parts, root), entry))
        else:
            rest.append((parts, entry))
    files = settle(claims, notes)
    notes += _on_others(root)
    notes += missing(files, course)
    notes += left_out(rest, root, course, files)
    return Choice(root.parts, files, notes, top=_top(items))


def _relative(parts: Parts, root: Root) -> str:
    """The path from the root; of a file of answers above it, with dots."""
    above = len(root.parts) - len(parts[:-1])
    if above > 0:
        return "../" * above + parts[-1]
    return "/".join(parts[len(root.parts) :])


def _items(entries: Iterable[Entry], notes: list[Note]) -> list[Item]:
    """The entries with a path worth a look; noise goes without a word."""
    items, faults = [], defaultdict(list)
    for entry in entries:
        parts = split(entry.name)
        if not parts or any(is_noise(part) for part in parts):
            continue
        if fault := fault_of(entry.name):
            faults[fault].append(show(entry.name))
        else:
            items.append((parts, entry))
    notes += [(About.LEFT_OUT, told(names, fault)) for fault, names in faults.items()]
    environments = {parts[:-1] for parts, _ in items if parts[-1] == ENVIRONMENT}
    return [
        (parts, entry)
        for parts, entry in items
        if not any(parts[:n] in environments for n in range(1, len(parts)))
    ]


def _nothing(items: list[Item], notes: list[Note], course: Course) -> Choice:
    archives = [e for p, e in items if e.kind == FILE and p[-1].lower().endswith(ENDINGS)]
    notes += left_out(items, Root(), course, {})
    return Choice(notes=notes, archives=archives, top=_top(items))


def _top(items: list[Item]) -> list[str]:
    names = [show(p[0]) + ("/" if len(p) > 1 or e.kind == FOLDER else "") for p, e in items]
    return list(dict.fromkeys(names))


def _on_others(root: Root) -> list[Note]:
    if not root.others:
        return []
    places = [show(parts) + "/" for parts in (root.parts, *sorted(root.others))]
    what = "course files" if root.flat else "unit folders"
    line = f"{what} are in {listed(places)}: those in {places[0]} are taken ({RULE})"
    return [(About.WHOLE, line)]
