"""A kernel as data: its source, that of its helpers, and the constants that they name."""

from __future__ import annotations

import ast
import types
from dataclasses import dataclass, field

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

__tracebackhide__ = True

MODULES = {"triton": triton, "triton.language": tl, "triton.language.math": tl.math}
Constant = int | float | bool | str


class NotDescribable(ValueError):
    """A kernel that uses what cannot be sent."""


@dataclass
class Description:
    """Everything that a kernel is made of.

    name: of the function that is launched. functions: name -> source, as `@triton.jit` was given
    it, without the decorator. modules: what a name such as `tl` stands for. constants: global
    `tl.constexpr` values. members: name -> (module, attribute), of `from triton.language import …`.
    """

    name: str
    functions: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)


def describe(kernel: JITFunction) -> Description:
    """Follow every global name of the kernel and its helpers.

    Raises:
        NotDescribable: a name stands for something that is neither Triton's, nor a helper with
            `@triton.jit`, nor a `tl.constexpr`; or two helpers have the same name.
    """
    description = Description(kernel.fn.__name__)
    waiting = [kernel]
    described: dict[str, JITFunction] = {}
    while waiting:
        function = waiting.pop()
        name = function.fn.__name__
        if described.setdefault(name, function) is not function:
            raise NotDescribable(f"two helpers are called {name!r}")
        if name in description.functions:
            continue
        description.functions[name] = function.src
        for used, line in sorted(_global_names(function).items()):
            value = function.fn.__globals__[used]
            if isinstance(value, JITFunction) and not _is_tritons(value):
                if value.fn.__name__ != used:
                    raise NotDescribable(f"{used!r} is a helper that is defined as another name")
                waiting.append(value)
            elif not _describe_global(description, used, value):
                raise NotDescribable(f"{name}, line {line}: {_refusal(used, value)}")
    return description


def _global_names(function: JITFunction) -> dict[str, int]:
    """Each with the line where it is first used, counted from the function's `def`."""
    nodes = list(ast.walk(ast.parse(function.src)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    local = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    local |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    known = function.fn.__globals__.keys() - local
    lines = sorted(((node.lineno, node.id) for node in names if node.id in known), reverse=True)
    return {name: line for line, name in lines}


def _is_tritons(value: object) -> bool:
    return getattr(value, "__module__", "").split(".")[0] == "triton"


def _describe_global(description: Description, name: str, value: object) -> bool:
    """Whether it is something that can be described."""
    if isinstance(value, types.ModuleType) and value.__name__ in MODULES:
        description.modules[name] = value.__name__
    elif isinstance(value, tl.constexpr) and isinstance(value.value, Constant):
        description.constants[name] = value.value
    elif (member := _member(value)) is not None:
        description.members[name] = list(member)
    else:
        return False
    return True


def _refusal(name: str, value: object) -> str:
    kind = type(value).__name__
    if isinstance(value, Constant):
        return f"{name} is a plain {kind}; a kernel may use {name} = tl.constexpr({value!r})"
    return (
        f"{name} is a {kind}; a kernel may use Triton, helpers with @triton.jit, and tl.constexpr "
        "values"
    )


def _member(value: object) -> tuple[str, str] | None:
    """Where Triton has it: (module, attribute)."""
    for module_name, module in MODULES.items():
        for attribute, member in vars(module).items():
            if member is value and not attribute.startswith("_"):
                return module_name, attribute
    return None
