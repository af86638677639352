"""The submission switch: `from submission.attention.kv_cache import …` is the tree under test.

`submission.<unit>.<module>` is a file of the chosen tree (solutions/, assignment/, or any path),
loaded with jaxtyping's run-time shape checks. A missing or broken file, or a missing name, never
stops a test file from loading: it becomes a placeholder, and using that raises one clear line.
`submission.provided` is the pristine `assignment.provided`, whatever the tree holds; and what a
file of the tree imports from another unit of `assignment` comes from the tree.

This module is for one process; `transport` is the same switch across a process boundary.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from jaxtyping import install_import_hook

from tests.grading.errors import SubmissionError
from tests.grading.shape_checks import check_when_called

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = "submission"
PROVIDED = f"{PACKAGE}.provided"
ASSIGNMENT = "assignment"
DEEPEST = 5_000  # calls: a check of shapes adds four to each of a submission's own


def default_tree() -> Path:
    """The reference where it exists (a full checkout), else the student's own files."""
    solutions = REPOSITORY / "solutions"
    return solutions if solutions.is_dir() else REPOSITORY / "assignment"


def find_tree(submission: str | Path | None) -> Path:
    """The folder with the unit folders: the path itself, or the assignment/ inside it.

    A relative path is looked up from the current folder, then from the repository. The folder
    need not exist: then every problem reports it.
    """
    if submission is None:
        return default_tree()
    path = locate(submission)
    nested = path / "assignment"
    return nested if nested.is_dir() else path


def locate(submission: str | Path) -> Path:
    """The submission as it was handed in: a folder or an archive, which need not exist."""
    path = Path(submission)
    if not path.is_absolute() and not path.exists():
        path = REPOSITORY / path
    return path.resolve()


def install(tree: Path) -> None:
    """Make `submission` mean `tree` in this process, replacing an earlier choice."""
    uninstall()
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEPEST))
    hook = install_import_hook(
        [PACKAGE], f"{check_when_called.__module__}.{check_when_called.__name__}"
    )
    sys.meta_path.insert(0, _Finder(tree, hook.uninstall))


def install_finder(finder: importlib.abc.MetaPathFinder) -> None:
    """Let another finder (the transport's proxies) answer for `submission`."""
    uninstall()
    sys.meta_path.insert(0, finder)


def uninstall() -> None:
    """Forget the tree and every module loaded from it."""
    finders = [f for f in sys.meta_path if getattr(f, "serves_submission", False)]
    if not finders and PACKAGE not in sys.modules:
        return  # a fresh child, where a walk over all modules would copy their pages
    for finder in finders:
        sys.meta_path.remove(finder)
        finder.close()
    for name in [
        n for n in sys.modules if n == PACKAGE or n.startswith(f"{PACKAGE}.") or _is_alias(n)
    ]:
        del sys.modules[name]


def resolve(module: str, name: str) -> object:
    """The object `name` of `submission.<module>`; SubmissionError when it is not there."""
    found = getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)
    if isinstance(found, _Missing):
        raise SubmissionError(found._line)
    return found


class _Finder(importlib.abc.MetaPathFinder):
    serves_submission = True

    def __init__(self, tree: Path, close: Callable[[], None]):
        self.tree, self.close = tree, close

    def find_spec(self, fullname, path=None, target=None):
        if fullname == PACKAGE:
            spec = ModuleSpec(fullname, _PackageLoader(), is_package=True)
            spec.submodule_search_locations = [str(self.tree)]
            return spec
        if fullname == PROVIDED or fullname.startswith(f"{PROVIDED}."):
            return ModuleSpec(fullname, _ProvidedLoader(), is_package=True)
        if fullname.startswith(f"{PACKAGE}."):
            return self._student_spec(fullname, path, target)
        if _is_alias(fullname):
            return ModuleSpec(fullname, _AliasLoader(), is_package=True)
        return None

    def _student_spec(self, fullname, path, target):
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:  # a folder without __init__.py has none
                    spec.loader = _TolerantLoader(spec.loader, self.tree)
                return spec
        return ModuleSpec(fullname, _AbsentLoader(self.tree), is_package=True)


class _PackageLoader(importlib.abc.Loader):
    def exec_module(self, module):
        """The package itself is empty: its parts are the tree's units."""


class _ProvidedLoader(importlib.abc.Loader):
    """A view of `assignment.provided`, so that its objects are the very same ones."""

    def exec_module(self, module):
        real = importlib.import_module("assignment" + module.__name__.removeprefix(PACKAGE))
        module.__getattr__ = lambda name: getattr(real, name)


class _AliasLoader(importlib.abc.Loader):
    """`assignment.attention`, as a student may write it, is `submission.attention`."""

    def create_module(self, spec):
        module = importlib.import_module(PACKAGE + spec.name.removeprefix(ASSIGNMENT))
        self._spec = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self._spec  # importlib has put its own there


def _is_alias(module: str) -> bool:
    package, _, rest = module.partition(".")
    return package == ASSIGNMENT and rest.partition(".")[0] not in ("", "provided")


class _TolerantLoader(importlib.abc.Loader):
    """Loads a student's file; what goes wrong is kept for whoever uses it."""

    def __init__(self, loader, tree: Path):
        self._loader, self._tree = loader, tree

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        line = ""
        try:
            self._loader.exec_module(module)
        except (Exception, SystemExit) as error:
            line = _describe_broken(module.__name__, error, self._tree)
            for name in [name for name in vars(module) if not name.startswith("__")]:
                del vars(module)[name]  # Python would not let anyone import them
        _answer_for_missing_names(module, line)

    def __getattr__(self, name):  # inspect, linecache and pdb ask the loader for the source
        return getattr(self._loader, name)


class _AbsentLoader(importlib.abc.Loader):
    def __init__(self, tree: Path):
        self._tree = tree

    def exec_module(self, module):
        problem = _problem_of(module.__name__)
        file = self._tree / (problem.replace(".", "/") + ".py")
        what = "no file" if self._tree.is_dir() else "no folder"
        where = file if self._tree.is_dir() else self._tree
        _answer_for_missing_names(module, f"{problem}: {what} {short(where)}")


class _Missing:
    """Stands where a name should be; every use says what is missing."""

    def __init__(self, line: str):
        self._line = line

    def __call__(self, *args, **kwargs):
        raise SubmissionError(self._line)

    def __getattr__(self, name):
        if name.startswith("__"):  # pytest and inspect look for these on everything
            raise AttributeError(name)
        raise SubmissionError(self._line)


def _answer_for_missing_names(module: ModuleType, broken: str) -> None:
    is_package = hasattr(module, "__path__")  # its names are the modules in it: to be looked for
    if (hasattr(module, "__getattr__") or is_package) and not broken:
        return
    problem = _problem_of(module.__name__)
    file = short(Path(getattr(module, "__file__", None) or problem.replace(".", "/")))

    def __getattr__(name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(broken or f"{problem}: {file} has no `{name}`")

    module.__getattr__ = __getattr__


def _describe_broken(module: str, error: BaseException, tree: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    else:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if str(tree) in f.filename]
        file, line = (frames[-1].filename, frames[-1].lineno) if frames else (str(tree), None)
    where = short(Path(file)) + (f", line {line}" if line else "")
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    first_line = text.splitlines()[0] if text else ""
    return f"{_problem_of(module)}: {where}: {type(error).__name__}: {first_line}"


def _problem_of(module: str) -> str:
    return module.removeprefix(f"{PACKAGE}.")


def short(path: Path) -> str:
    """The path as a person would say it: relative to the repository where it is inside."""
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else str(path)
