"""Handlers around a statement that would swallow what the stub raises in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
BASES = {base.__name__ for base in NotImplementedError.__mro__} - {"object"}


def swallowed(tree: ast.Module) -> dict[int, str]:
    """What would swallow a NotImplementedError raised at a statement, by the statement's id."""
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        if by := _swallower(node):
            found |= {id(inner): by for inner in _run_by(node.body)}
    return found


def _swallower(node: ast.AST) -> str:
    match node:
        case ast.Try() | ast.TryStar():
            first = next((h for h in node.handlers if h.type is None or _catches(h.type)), None)
            if first and not _raises_again(first):
                return f"the except on line {first.lineno}"
        case ast.With() | ast.AsyncWith():
            for item in node.items:
                match item.context_expr:
                    case ast.Call(func=called, args=classes) if _last_name(called) == "suppress":
                        if any(map(_catches, classes)):
                            return f"the suppress on line {called.lineno}"
    return ""


def _catches(classes: ast.expr) -> bool:
    if isinstance(classes, ast.Tuple):
        return any(map(_catches, classes.elts))
    return _last_name(classes) in BASES


def _last_name(node: ast.expr) -> str:
    """`suppress` of `contextlib.suppress`; "" where there is no name."""
    return getattr(node, "attr", None) or getattr(node, "id", "")


def _raises_again(handler: ast.ExceptHandler) -> bool:
    leaves = any(isinstance(node, ast.Return) for node in ast.walk(handler))
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None and not leaves


def _run_by(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    """All that runs within these statements; a function's body runs where it is called."""
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting += ast.iter_child_nodes(node)
