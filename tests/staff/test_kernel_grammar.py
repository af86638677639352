"""What leaves the student's process as a kernel: all of Triton's language, and nothing else."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from assignment.provided.lab.kernel import lab
from tests.grading.kernels.description import Description, NotDescribable, describe
from tests.grading.kernels.grammar import NotAllowed
from tests.grading.kernels.rebuild import rebuild
from tests.staff import lab_kernels

SCALE = tl.constexpr(3)
NOT_CONSTANT = 3
renamed = lab_kernels.softmax_of


@triton.jit
def doubled(x):
    return x * 2


@triton.jit
def with_helpers(x, out, LENGTH: tl.constexpr):
    at = tl.arange(0, LENGTH)
    tl.store(out + at, doubled(tl.load(x + at)) * SCALE + triton.cdiv(LENGTH, 2))


@triton.jit
def with_a_global(x):
    tl.store(x, NOT_CONSTANT)


@triton.jit
def with_another_name(x):
    tl.store(x, renamed(tl.load(x)))


def described(body: str, name: str = "kernel", **parts) -> Description:
    source = f"def {name}(x, out):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    return Description(name, {name: source}, {"tl": "triton.language"}, **parts)


def kernels() -> list[JITFunction]:
    found = [value for value in vars(lab_kernels).values() if isinstance(value, JITFunction)]
    return [kernel for kernel in found if kernel is not lab_kernels.from_a_number]


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.fn.__name__)
def test_kernels_come_through(kernel):
    assert rebuild(describe(kernel)).src == kernel.src


def test_what_comes_through_computes_the_same():
    x, out = torch.randn(8), torch.empty(8)
    kernel = rebuild(describe(with_helpers))
    with lab():
        kernel[(1,)](x, out, LENGTH=8)
    assert torch.equal(out, x * 6 + 4)


@pytest.mark.parametrize(
    "kernel, reason",
    [
        (
            with_a_global,
            r"with_a_global, line 2: NOT_CONSTANT is a plain int; a kernel may use "
            r"NOT_CONSTANT = tl\.constexpr\(3\)",
        ),
        (with_another_name, "defined as another name"),
    ],
)
def test_what_cannot_be_sent_is_said(kernel, reason):
    with pytest.raises(NotDescribable, match=reason):
        describe(kernel)


@pytest.mark.parametrize(
    "body",
    [
        "import os",
        "from os import path",
        "x.__class__",
        "tl.__builtins__",
        "tl.load.__globals__",
        "tl.core.builtin",
        "tl.extra.cuda",
        "tl.inline_asm_elementwise('', '', [x], tl.int32, True, 1)",
        "tl.static_print(x)",
        "tl.device_print('x', x)",
        "tl.tensor(x, x.type)",
        "tl.math.core",
        "tl.math.wraps(x)",
        "x.handle.data",
        "x.handle",
        "x.item()",
        "open('/etc/passwd')",
        "__import__('os')",
        "eval('1')",
        "getattr(x, 'handle')",
        "print(x)",
        "lambda: x",
        "[y for y in range(3)]",
        "f'{x.handle}'",
        "(lambda: 1)()",
        "tl.load(x)(1)",
        "tl = x",
        "global tl",
        "nonlocal x",
        "raise ValueError",
        "assert x",
        "del x",
        "with x: pass",
        "try:\n    pass\nexcept Exception:\n    pass",
        "def inner(): pass",
        "class Inner: pass",
        "yield x",
        "await x",
        "y = (z := x)",
        "tl.store(**x)",
        "tl.store(*x)",
        "x @ out\nout.T.__init__",
        "__builtins__",
        "unknown(x)",
        "{1: x}",
        "range.__self__",
        "async def f(): pass",
        "match x:\n    case 1: pass",
        "x: __import__('os') = 1",
        "for __x in range(2): pass",
    ],
)
def test_what_is_not_of_the_language_is_refused(body):
    with pytest.raises(NotAllowed):
        rebuild(described(body))


@pytest.mark.parametrize(
    "body",
    [
        "tl.store(out, tl.load(x))",
        "for i in range(0, 3):\n    out += 1\nreturn",
        "for i in tl.range(0, 3, num_stages=2):\n    out += 1",
        "y: tl.constexpr = 3\nwhile y > 3:\n    y -= 1",
        "tl.store(out, tl.load(x).to(tl.float32).sum(), mask=True)",
        "y = float('inf') if x.dtype.element_ty == tl.float16 else min(1, 2)",
        "y = tl.load(x)[:, None]\na, b = tl.split(y)",
        "tl.static_assert(True)",
    ],
)
def test_what_is_of_the_language_is_taken(body):
    rebuild(described(body))


@pytest.mark.parametrize(
    "parts",
    [
        {"functions": {}},
        {"functions": {"kernel": "def other(): pass"}},
        {"functions": {"kernel": "x = 1"}},
        {"functions": {"kernel": "def kernel(): pass\nimport os"}},
        {"functions": {"kernel": "@print\ndef kernel(): pass"}},
        {"functions": {"kernel": "def kernel(*x): pass"}},
        {"functions": {"kernel": "def kernel(x=open('f')): pass"}},
        {"functions": {"kernel": "def kernel(x: print('f')): pass"}},
        {"functions": {"kernel": "def kernel() -> print('f'): pass"}},
        {"functions": {"kernel": "def kernel(tl): pass"}},
        {"functions": {"kernel": "def kernel(" + "(" * 500}},
        {"functions": {"kernel": "#" * 200_000}},
        {"modules": {"tl": "os"}},
        {"modules": {"range": "triton"}},
        {"members": {"f": ["triton.language", "core"]}},
        {"members": {"f": ["os", "system"]}},
        {"constants": {"__builtins__": 1}},
        {"constants": {"range": 1}},
    ],
)
def test_a_description_that_is_none(parts):
    given = {"functions": {"kernel": "def kernel(): pass"}, "modules": {"tl": "triton.language"}}
    with pytest.raises(NotAllowed):
        rebuild(Description("kernel", **(given | parts)))
