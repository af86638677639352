"""A kernel out of its description, after its source was read."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Callable

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from .description import MODULES, Description
from .grammar import BUILTINS, NotAllowed, check_function, check_names, is_of_the_language

__tracebackhide__ = True

_rebuilt = 0  # each has a file name of its own, by which Triton finds its source


def check(description: Description) -> None:
    """
    Raises:
        NotAllowed: something in the kernel or its helpers is not of Triton's language.
    """
    functions, constants = description.functions, description.constants
    check_names(*functions, *constants, *description.members, *description.modules)
    if description.name not in functions:
        raise NotAllowed(f"there is no function {description.name!r}")
    for module in description.modules.values():
        if module not in MODULES:
            raise NotAllowed(f"the module {module!r}")
    for module, member in description.members.values():
        if not is_of_the_language(f"{module}.{member}"):
            raise NotAllowed(f"{module}.{member}")
    names = frozenset([*functions, *constants, *description.members])
    for name, source in functions.items():
        check_function(name, source, names, description.modules)


def rebuild(description: Description) -> JITFunction:
    """The kernel, with its helpers, in a namespace that holds nothing else.

    Raises:
        NotAllowed: as `check`.
    """
    check(description)
    namespace: dict[str, object] = {"__builtins__": _builtins(), "__name__": "kernel"}
    namespace |= {name: MODULES[module] for name, module in description.modules.items()}
    for name, (module, member) in description.members.items():
        namespace[name] = getattr(MODULES[module], member)
    namespace |= {name: tl.constexpr(value) for name, value in description.constants.items()}
    for name, source in description.functions.items():
        namespace[name] = triton.jit(_define(name, source, namespace))
    return namespace[description.name]


def is_rebuilt(file: str) -> bool:
    """Whether code of this file, as a traceback has it, is of a kernel."""
    return file.startswith("<kernel ")


def _define(name: str, source: str, namespace: dict[str, object]) -> Callable:
    global _rebuilt
    _rebuilt += 1
    file = f"<kernel {_rebuilt}: {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    # The grammar has read it.
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


def _builtins() -> dict[str, object]:
    module = importlib.import_module("builtins")
    return {name: getattr(module, name) for name in BUILTINS}
