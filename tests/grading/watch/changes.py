"""Which files count as the submission's, and which problems a change of some can touch."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

TREES = ("assignment", "solutions", "submission")  # what an absolute import may begin with
FOREIGN = ("provided", "__pycache__")  # the grader uses its own


def counts(path: Path, tree: Path, answers: Collection[str] = ()) -> bool:
    """Whether a changed path is a Python file of the submission, or may be a folder of such files.

    Or it is one of the files of answers, such as "review.toml".

    Editors write beside it: `4913`, `kv_cache.py~`, `.kv_cache.py.swp`, `.#kv_cache.py`.
    """
    if not path.is_relative_to(tree):
        return False
    parts = path.relative_to(tree).parts
    hidden = any(part.startswith(".") or part in FOREIGN for part in parts)
    known = path.suffix == ".py" or "." not in path.name or "/".join(parts) in answers
    return not hidden and known and path.name != "4913"


def touched(
    changed: Iterable[Path],
    tree: Path,
    problems: Collection[str],
    current: str | None,
    answers: Mapping[str, str] | None = None,
) -> set[str]:
    """The problems whose results may differ after these changes.

    A problem depends on its file and on what that imports. What no problem depends on, such as a
    new file, concerns the current one.

    Args:
        answers: files of answers, such as "review.toml", and the problem of each.
    """
    answers = answers or {}
    needs = {name: closure(name, tree) for name in problems}
    found: set[str] = set()
    for path in changed:
        if problem := answers.get(path.relative_to(tree).as_posix()):
            found.add(problem)
            continue
        module = ".".join(path.relative_to(tree).parts).removesuffix(".py")
        module = module.removesuffix(".__init__")
        hit = {name for name, modules in needs.items() if _meets(module, path, modules)}
        found |= hit or ({current} if current and path.suffix == ".py" else set())
    return found


def closure(module: str, tree: Path) -> set[str]:
    """The module and all of the tree's that it imports, directly or not, packages included."""
    known: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name and name not in known:
            known.add(name)
            waiting += [name.rpartition(".")[0], *_imports(name, tree)]
    return known


def _meets(module: str, path: Path, modules: set[str]) -> bool:
    if path.suffix == ".py":
        return module in modules
    return not module or any(f"{name}.".startswith(f"{module}.") for name in modules)


def _imports(module: str, tree: Path) -> Iterator[str]:
    """Names of modules that a file imports, and names that may be modules. None while broken."""
    file = tree / (module.replace(".", "/") + ".py")
    package = module.rpartition(".")[0]
    if not file.is_file():
        file, package = tree / module.replace(".", "/") / "__init__.py", module
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (_inside(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _base(node: ast.ImportFrom, package: str) -> str:
    """What is imported from: of `from ..attention.kv_cache import …`, "attention.kv_cache"."""
    if not node.level:
        return _inside(node.module or "")
    parts = package.split(".")
    kept = parts[: len(parts) - node.level + 1]
    return ".".join([*filter(None, kept), *filter(None, [node.module])])


def _inside(module: str) -> str:
    """An absolute name as the tree has it; "" for what is not of the tree."""
    first, _, rest = module.partition(".")
    return rest if first in TREES else ""
