"""What a region holds, and whether the code around it survives without it."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from .handlers import swallowed
from .markers import Report, Span

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (ast.Module, ast.ClassDef, *FUNCTIONS)
BLANK_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Block:
    """Statements in a row: a body, an else branch, …; `scope` is what they run in."""

    scope: ast.AST
    owner: ast.AST
    statements: list[ast.stmt]


@dataclass(frozen=True)
class Region:
    """Whole statements of one block, between two markers."""

    span: Span
    block: Block
    statements: list[ast.stmt]

    @property
    def in_function(self) -> bool:
        return isinstance(self.block.scope, FUNCTIONS)


Removed = dict[int, Region]
"""The region that takes a statement out, by the statement's id."""


def find_regions(source: str, spans: list[Span], report: Report) -> list[Region]:
    """The regions of a source that compiles; every fault goes to `report`."""
    tree = ast.parse(source)
    all_blocks = list(_blocks(tree))
    code = _code_lines(source)
    found = (_region(span, all_blocks, code, report) for span in spans)
    regions = [region for region in found if region is not None]
    removed = {id(statement): region for region in regions for statement in region.statements}
    for block in all_blocks:
        _check_left_over(block, removed, report)
    caught = swallowed(tree)
    for region in regions:
        _check_docstring(region, report)
        if region.in_function and (by := caught.get(id(region.statements[0]))):
            report(region.span.begin, f"the stub's NotImplementedError would be swallowed by {by}")
    return regions


def first_line(statement: ast.stmt) -> int:
    """Where a statement begins; a decorator belongs to it."""
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _blocks(node: ast.AST, scope: ast.AST | None = None) -> Iterator[Block]:
    scope = node if isinstance(node, SCOPES) else scope
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if isinstance(statements, list) and statements:  # a lambda's body is an expression
            yield Block(scope, node, statements)
    for child in ast.iter_child_nodes(node):
        yield from _blocks(child, scope)


def _code_lines(source: str) -> set[int]:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BLANK_TOKENS:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def _region(span: Span, blocks: list[Block], code: set[int], report: Report) -> Region | None:
    uncovered = {line for line in code if span.holds(line)}
    if not uncovered:
        report(span.begin, "empty region: there is no code between the markers")
        return None
    for block in blocks:  # outermost first
        held = [s for s in block.statements if _whole(s, span)]
        if not held:
            continue
        for statement in held:
            uncovered -= set(range(first_line(statement), statement.end_lineno + 1))
        if uncovered:
            break
        if held[0].col_offset != len(span.indent):
            report(span.begin, "the markers are not indented as the code between them")
            return None
        return Region(span, block, held)
    line = min(uncovered)
    report(line, f"the region begun on line {span.begin} cuts a statement in two here")
    return None


def _whole(statement: ast.stmt, span: Span) -> bool:
    return span.holds(first_line(statement)) and span.holds(statement.end_lineno)


def _check_docstring(region: Region, report: Report) -> None:
    owner = region.block.owner
    swallowed = (
        isinstance(owner, SCOPES)
        and ast.get_docstring(owner, clean=False) is not None
        and region.statements[0] is region.block.statements[0]
    )
    if swallowed:
        what = getattr(owner, "name", "the module")
        report(region.span.begin, f"the region swallows the docstring of {what}")


def _check_left_over(block: Block, removed: Removed, report: Report) -> None:
    if isinstance(block.scope, FUNCTIONS):
        _check_reachable(block, removed, report)
    elif not isinstance(block.owner, ast.Module) and all(
        id(statement) in removed for statement in block.statements
    ):
        name = getattr(block.owner, "name", None)
        what = f"class {name}" if name else "the block"
        report(first_line(block.statements[0]), f"the stub leaves {what} without a body")


def _check_reachable(block: Block, removed: Removed, report: Report) -> None:
    """In the stub a region raises: what follows it in its block would never run."""
    for statement, after in zip(block.statements, block.statements[1:], strict=False):
        if removed.get(id(statement)) is removed.get(id(after), ...):
            continue  # two lines of one region
        if _ends(statement, removed) and not _ends(statement, {}):
            report(first_line(after), "never reached in the stub: the region before it raises")
            return


def _ends(statement: ast.stmt, removed: Removed) -> bool:
    """Whether control never passes from this statement to the one behind it."""

    def block_ends(statements: list[ast.stmt]) -> bool:
        return any(_ends(inner, removed) for inner in statements)

    if id(statement) in removed:
        return True
    match statement:
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return True
        case ast.With() | ast.AsyncWith():
            return block_ends(statement.body)
        case ast.If():
            return block_ends(statement.body) and block_ends(statement.orelse)
        case ast.Try() | ast.TryStar():
            handled = all(block_ends(handler.body) for handler in statement.handlers)
            body = block_ends(statement.body) or block_ends(statement.orelse)
            return block_ends(statement.finalbody) or (body and handled)
    return False
