"""Several entries that would become one file: which is taken, what is said. Pure."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tests.grading.intake.entries import Entry
from tests.grading.intake.notes import About, Note, listed, show


@dataclass(frozen=True)
class Claim:
    """An entry that would become `target`; `path` is how the submission has it, in its root."""

    target: str
    path: str
    entry: Entry


def settle(claims: Mapping[str, list[Claim]], notes: list[Note]) -> dict[str, Entry]:
    """Target → entry, from claims that are equal but for capitals, so that it is the same on
    every file system.

    Of equal paths the last one counts, as when an archive is unpacked. Of different ones the one
    in small letters, as the course spells its files; without that one, none.
    """
    files, moved = {}, defaultdict(list)
    for key, all_claims in claims.items():
        by_path = {claim.path: claim for claim in all_claims}  # the last one stays
        if len(by_path) < len(all_claims):
            line = f"{show(key)} is there more than once: the last one is taken"
            notes.append((About.RENAMED, line))
        claim = all_claims[-1] if len(by_path) == 1 else by_path.get(key)
        if len(by_path) > 1:
            notes.append((About.RENAMED, _on_several(by_path, key, claim)))
        if claim:
            files[claim.target] = claim.entry
            _note_move(claim, moved, notes)
    for unit, names in moved.items():
        line = f"{listed(names)} {'is' if len(names) == 1 else 'are'} taken into {unit}/"
        notes.append((About.RENAMED, line))
    return files


def _on_several(by_path: dict[str, Claim], key: str, taken: Claim | None) -> str:
    others = [show(path) for path in by_path if taken is None or path != taken.path]
    if taken:
        return f"{show(key)} is taken, not {listed(others)}, which would become the same file"
    return f"{listed(others)} would become the same file: none is taken"


def _note_move(claim: Claim, moved: dict[str, list[str]], notes: list[Note]) -> None:
    path, target = unicodedata.normalize("NFKC", claim.path), claim.target
    if path == target:
        return
    if "/" not in target:  # a file of answers
        notes.append((About.RENAMED, f"{show(path)} is taken as {show(target)}"))
        return
    if "/" not in path:
        moved[target.partition("/")[0]].append(show(path))
        return
    (folder, _, file), (unit, _, module) = path.partition("/"), target.partition("/")
    if file == module:
        path, target = f"{folder}/", f"{unit}/"
    notes.append((About.RENAMED, f"{show(path)} is taken as {show(target)}"))
