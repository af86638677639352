"""What a kernel's source may contain: Triton's language, and nothing else of Python."""

from __future__ import annotations

import ast
import keyword

import triton.language as tl

__tracebackhide__ = True

# Not of the language, but doors out of it, or noise.
BARRED = {
    "core", "extra", "semantic", "standard", "random", "tensor", "tuple", "dtype", "block_type",
    "pointer_type", "target_info", "to_tensor", "inline_asm_elementwise", "map_elementwise",
    "device_print", "device_assert", "static_print", "const", "constexpr_type",
    "pi32_t", "TRITON_MAX_TENSOR_NUMEL", "condition", "slice", "tensor_descriptor",
}  # fmt: skip
LANGUAGE = frozenset(tl.__all__) - BARRED
# What values have: of a tensor, a pointer, a dtype.
ATTRIBUTES = frozenset(
    name for name in dir(tl.tensor) if not name.startswith("_")
) - {"item", "map_elementwise"} | {
    "dtype", "element_ty", "shape", "type", "value", "primitive_bitwidth", "is_floating", "is_fp8",
    "is_int", "load", "cast",
}  # fmt: skip
BUILTINS = frozenset({"range", "min", "max", "abs", "len", "int", "float", "bool"})
STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.For, ast.While, ast.If, ast.Return,
    ast.Pass,
)  # fmt: skip
EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword, ast.Name,
    ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Constant, ast.Load, ast.Store,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
MOST_CHARACTERS = 100_000


class NotAllowed(ValueError):
    """The line of the source that a kernel may not have, and why."""


def check_function(name: str, source: str, names: frozenset[str], modules: dict[str, str]) -> None:
    """
    Args:
        name: of the function. source: its `def`, and nothing else.
        names: of helpers, constants and members of Triton that it may use.
        modules: name -> module, as "tl" -> "triton.language".

    Raises:
        NotAllowed: the source has something that is not of Triton's language.
    """
    if len(source) > MOST_CHARACTERS:
        raise NotAllowed(f"{name}: {len(source)} characters of source")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotAllowed(f"{name}: not Python: {type(error).__name__}") from None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise NotAllowed(f"{name}: expected one function")
    _Check(name, names, modules).function(tree.body[0])


def check_names(*names: str) -> None:
    """Of functions and constants: plain, and nobody else's.

    Raises:
        NotAllowed: one of them is not.
    """
    for name in names:
        if not _is_plain(name) or name in BUILTINS:
            raise NotAllowed(f"{name!r} is no name for this")


class _Check:
    def __init__(self, name: str, names: frozenset[str], modules: dict[str, str]):
        self.name, self.names, self.modules = name, names, modules

    def function(self, node: ast.FunctionDef) -> None:
        if node.name != self.name:
            self._refuse(node, f"a function called {node.name!r}")
        if node.decorator_list or node.returns or getattr(node, "type_params", None):
            self._refuse(node, "more in its first line than a name and arguments")
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.posonlyargs or arguments.kwonlyargs:
            self._refuse(node, "an argument that is not a plain one")
        parameters = {argument.arg for argument in arguments.args}
        assigned = {
            inner.id
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
        }
        for name in parameters | assigned:
            if not _is_plain(name) or name in self.modules:
                self._refuse(node, f"a variable called {name!r}")
        self.known = self.names | parameters | assigned | BUILTINS
        for argument in arguments.args:
            if argument.annotation is not None:
                self._expression(argument.annotation)
        for default in arguments.defaults:
            self._expression(default)
        self._statements(node.body)

    def _statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if not isinstance(statement, STATEMENTS):
                self._refuse(statement, type(statement).__name__)
            for part, value in ast.iter_fields(statement):
                if part in ("body", "orelse"):
                    self._statements(value)
                elif part == "annotation" and isinstance(value, ast.expr):
                    self._expression(value)
                else:
                    for inner in value if isinstance(value, list) else [value]:
                        if isinstance(inner, ast.AST):
                            self._expression(inner)

    def _expression(self, expression: ast.AST) -> None:
        # Attributes of a module are looked at together with it, and not again by themselves.
        waiting = [expression]
        while waiting:
            node = waiting.pop()
            if not isinstance(node, EXPRESSIONS):
                self._refuse(node, type(node).__name__)
            if isinstance(node, ast.Attribute):
                if self._is_of_a_module(node):
                    continue
                if node.attr not in ATTRIBUTES:
                    self._refuse(node, f"the attribute {node.attr!r}")
            elif isinstance(node, ast.Name) and node.id not in self.known:
                self._refuse(node, f"the name {node.id!r}")
            elif isinstance(node, ast.Call) and not isinstance(node.func, ast.Name | ast.Attribute):
                self._refuse(node, "a call of something that has no name")
            elif isinstance(node, ast.keyword) and node.arg is None:
                self._refuse(node, "**")
            waiting += ast.iter_child_nodes(node)

    def _is_of_a_module(self, node: ast.Attribute) -> bool:
        """`tl.load`, `tl.math.exp2`, `triton.cdiv`."""
        path = [node.attr]
        inner = node.value
        while isinstance(inner, ast.Attribute):
            path.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name) or inner.id not in self.modules:
            return False
        whole = ".".join([self.modules[inner.id], *reversed(path)])
        if not is_of_the_language(whole):
            self._refuse(node, whole)
        return True

    def _refuse(self, node: ast.AST, what: str) -> None:
        line = getattr(node, "lineno", 0)
        raise NotAllowed(f"{self.name}, line {line}: a kernel may not use {what}")


def is_of_the_language(path: str) -> bool:
    """ "triton.language.load" and the like."""
    module, _, name = path.rpartition(".")
    if module == "triton":
        return name in ("cdiv", "next_power_of_2", "language")
    if module == "triton.language":
        return name in LANGUAGE
    return module == "triton.language.math" and name in LANGUAGE


def _is_plain(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")
