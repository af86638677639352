"""What a file's docstrings advise. The file is only parsed: importing it would run it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.grading.errors import UNWRITTEN
from tests.grading.report import Failure

SIZE = re.compile(r"(?:[Aa]bout )?\d+(?:–\d+)? lines?\b[^.]*\.")


@dataclass(frozen=True)
class Advice:
    """Of one function: what its docstring hints at, and how long a good answer is."""

    function: str  # "KVCache.append"
    text: str  # "" where the docstring gives no advice


def advice(source: str) -> list[Advice]:
    """One for each function and class with a docstring, in the order of the file.

    Raises SyntaxError where the file cannot be parsed.
    """
    return [Advice(name, _advice(docstring)) for name, docstring in _docstrings(source)]


def fitting(found: list[Advice], failure: Failure | None, function: str = "") -> list[Advice]:
    """The advice on what fails: on the function that is not written, or that was at work.

    Else on those that the failing test names; on all when nothing is known.

    Args:
        function: that was at work when the test failed, if known.
    """
    if failure is None:
        return _worth_showing(found)
    unwritten = re.fullmatch(rf"(?:\S+: )?(\S+) {UNWRITTEN}", failure.message)
    named = unwritten[1] if unwritten else function
    if exact := [one for one in found if named and one.function in (named, f"{named}.__init__")]:
        return exact
    if inner := [one for one in found if named and one.function.endswith(f".{named}")]:
        return inner
    words = set(re.findall(r"\w+", _test_body(failure.details) + failure.message))
    used = [one for one in found if one.function.rpartition(".")[2] in words]
    return _worth_showing(used) or _worth_showing(found)


def has_stub(source: str) -> bool:
    """Whether a function still raises the NotImplementedError of a stub."""
    return re.search(r"^\s+raise NotImplementedError\s*(#.*)?$", source, re.MULTILINE) is not None


def _worth_showing(found: list[Advice]) -> list[Advice]:
    return [one for one in found if one.text]


def _test_body(details: str) -> str:
    """The failing test itself: the first part of pytest's traceback, without the helpers."""
    return re.split(r"^(?:_ )+_?$", details, maxsplit=1, flags=re.MULTILINE)[0]


def _docstrings(source: str) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(source)
    except (ValueError, RecursionError) as error:  # a NUL in it; brackets without end
        raise SyntaxError(str(error)) from None
    yield from _below(tree, "")


def _below(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = prefix + child.name
            if docstring := ast.get_docstring(child):
                yield name, inspect.cleandoc(docstring)
            if isinstance(child, ast.ClassDef):
                yield from _below(child, f"{name}.")


def _advice(docstring: str) -> str:
    for paragraph in re.split(r"\n\s*\n", docstring):
        if hint := " ".join(paragraph.split()).partition("Hint: ")[2]:
            return hint[:1].upper() + hint[1:]
    size = SIZE.search(" ".join(docstring.split()))
    return f"No hint here, but the size of an answer: {size[0].lower()}" if size else ""
