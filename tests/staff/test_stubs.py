"""The stub generator: what becomes of a region, every fault, and the two trees in step."""

import os
import shutil
import textwrap

import pytest

from tests.staff.authoring import stubs
from tests.staff.authoring.stubs import make_stub

UNIT = "solutions/attention"


def stub_of(source: str) -> str:
    stub, faults = make_stub(textwrap.dedent(source).lstrip("\n").encode(), "x.py")
    assert faults == []
    return stub


def faults_of(source: str) -> list[str]:
    stub, faults = make_stub(textwrap.dedent(source).lstrip("\n").encode(), "x.py")
    assert stub == ""
    return [str(fault) for fault in faults]


def expect(source: str, stub: str) -> None:
    assert stub_of(source) == textwrap.dedent(stub).lstrip("\n")


def test_region_in_a_function_raises():
    expect(
        '''
        def double(x):
            """Twice x."""
            # Hint: one line.
            # BEGIN SOLUTION
            y = x + x

            return y
            # END SOLUTION


        def keep(x):
            return x
        ''',
        '''
        def double(x):
            """Twice x."""
            # Hint: one line.
            raise NotImplementedError


        def keep(x):
            return x
        ''',
    )


def test_region_in_a_branch_keeps_its_indentation():
    expect(
        """
        class Cache:
            async def get(self, x):
                if x:
                    # BEGIN SOLUTION
                    x = 1
                    # END SOLUTION
                else:
                    x = 2
                return x
        """,
        """
        class Cache:
            async def get(self, x):
                if x:
                    raise NotImplementedError
                else:
                    x = 2
                return x
        """,
    )


def test_regions_of_module_and_class_go_without_a_trace():
    expect(
        '''
        # BEGIN SOLUTION
        import secret
        # END SOLUTION
        import torch

        # BEGIN SOLUTION
        LIMIT = 3
        # END SOLUTION

        NAMES = 1


        # BEGIN SOLUTION
        @decorated
        def helper():
            """Gone."""
            return 1


        # END SOLUTION
        class Cache:
            # BEGIN SOLUTION
            x = 1
            # END SOLUTION

            y = 2

            # BEGIN SOLUTION
            def helper(self):
                return 1
            # END SOLUTION


        Z = 1

        # BEGIN SOLUTION
        W = 2
        # END SOLUTION
        ''',
        """
        import torch

        NAMES = 1


        class Cache:
            y = 2


        Z = 1
        """,
    )


def test_region_within_a_function_within_a_dropped_region_is_nested():
    [fault] = faults_of(
        """
        # BEGIN SOLUTION
        def f():
            # BEGIN SOLUTION
            return 1
            # END SOLUTION
        # END SOLUTION
        """
    )
    assert fault.startswith("x.py:3: ") and "line 1" in fault and "nest" in fault


def test_strings_and_prose_that_speak_of_markers_are_no_markers():
    source = '''
        """Text.

        # BEGIN SOLUTION
        """
        # the line "# BEGIN SOLUTION" opens a region
        A = "# END SOLUTION"


        def f():
            """
            # END SOLUTION
            """
            return """
            # BEGIN SOLUTION
            """
        '''
    expect(source, source)


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("final", [True, False])
def test_line_ends_come_out_the_same(newline, final):
    source = "def f():\n\t# BEGIN SOLUTION\n\treturn 1\n\t# END SOLUTION\n\n\nA = 1\n"
    source = source if final else source[:-1]
    stub, faults = make_stub(source.replace("\n", newline).encode())
    assert (stub, faults) == ("def f():\n\traise NotImplementedError\n\n\nA = 1\n", [])


def test_final_marker_without_newline_byte_order_mark_and_empty_file():
    source = "\ufeffdef f():\n    # BEGIN SOLUTION\n    return 'é'\n    # END SOLUTION"
    assert make_stub(source.encode())[0] == "def f():\n    raise NotImplementedError\n"
    assert make_stub(b"") == ("", [])


BODY = """
def f(x):
    {}
    return x
    {}
"""

FAULTS = {
    "unclosed": (BODY.format("# BEGIN SOLUTION", "# done"), 2, "never closed"),
    "end without begin": (BODY.format("# start", "# END SOLUTION"), 4, "without"),
    "no space": (BODY.format("#BEGIN SOLUTION", "#END SOLUTION"), 2, "spelled"),
    "lower case": (BODY.format("# begin solution", "# end solution"), 2, "spelled"),
    "two spaces": (BODY.format("# BEGIN  SOLUTION", "# END  SOLUTION"), 2, "spelled"),
    "plural": (BODY.format("# BEGIN SOLUTIONS", "# END SOLUTIONS"), 2, "spelled"),
    "underscore": (BODY.format("# BEGIN_SOLUTION", "# END_SOLUTION"), 2, "spelled"),
    "other order": (BODY.format("# SOLUTION BEGIN", "# SOLUTION END"), 2, "spelled"),
    "other word": (BODY.format("# START SOLUTION", "# STOP SOLUTION"), 2, "spelled"),
    "trailing junk": (BODY.format("# BEGIN SOLUTION here", "# ok"), 2, "spelled"),
    "behind code": (BODY.format("y = x  # BEGIN SOLUTION", "# END SOLUTION"), 2, "alone"),
    "empty": ("def f(x):\n    # BEGIN SOLUTION\n\n    # END SOLUTION\n    return x\n", 2, "empty"),
    "only a comment": (
        "def f(x):\n    # BEGIN SOLUTION\n    # hm\n    # END SOLUTION\n    return x\n",
        2,
        "empty",
    ),
    "end indented otherwise": (
        "def f(x):\n    # BEGIN SOLUTION\n    return x\n# END SOLUTION\n",
        4,
        "not indented as",
    ),
    "both indented otherwise": (
        "def f(x):\n  # BEGIN SOLUTION\n    return x\n  # END SOLUTION\n",
        2,
        "not indented as the code",
    ),
    "cuts a list": (
        "X = [\n    # BEGIN SOLUTION\n    1,\n    # END SOLUTION\n]\n",
        3,
        "cuts a statement",
    ),
    "cuts an if": (
        "def f(x):\n    if x:\n        # BEGIN SOLUTION\n        a = 1\n    else:\n"
        "        # END SOLUTION\n        a = 2\n    return a\n",
        5,
        "cuts a statement",
    ),
    "cuts a function": (
        "# BEGIN SOLUTION\ndef f(x):\n    y = x\n# END SOLUTION\n    return y\n",
        2,
        "cuts a statement",
    ),
    "cuts a decorator off": (
        "# BEGIN SOLUTION\n@decorated\n# END SOLUTION\ndef f(x):\n    return y\n",
        2,
        "cuts a statement",
    ),
    "code behind": (
        "def f(x):\n    # BEGIN SOLUTION\n    y = x\n    # END SOLUTION\n    return y\n",
        5,
        "never reached",
    ),
    "code behind a with": (
        "def f(x):\n    with x:\n        # BEGIN SOLUTION\n        y = x\n"
        "        # END SOLUTION\n    return y\n",
        6,
        "never reached",
    ),
    "code behind both branches": (
        "def f(x):\n    if x:\n        # BEGIN SOLUTION\n        y = x\n"
        "        # END SOLUTION\n    else:\n        return 1\n    return y\n",
        8,
        "never reached",
    ),
    "code behind a try": (
        "def f(x):\n    try:\n        # BEGIN SOLUTION\n        y = x\n"
        "        # END SOLUTION\n    finally:\n        x = 1\n    return y\n",
        8,
        "never reached",
    ),
    "second region behind": (
        "def f(x):\n    # BEGIN SOLUTION\n    y = x\n    # END SOLUTION\n"
        "    # BEGIN SOLUTION\n    return y\n    # END SOLUTION\n",
        6,
        "never reached",
    ),
    "function's docstring": (
        'def f(x):\n    # BEGIN SOLUTION\n    """Doc."""\n    return x\n    # END SOLUTION\n',
        2,
        "docstring of f",
    ),
    "class's docstring": (
        'class A:\n    # BEGIN SOLUTION\n    """Doc."""\n    # END SOLUTION\n    x = 1\n',
        2,
        "docstring of A",
    ),
    "module's docstring": (
        '# BEGIN SOLUTION\n"""Doc."""\n# END SOLUTION\nx = 1\n',
        1,
        "docstring of the module",
    ),
    "class without a body": (
        "class A:\n    # BEGIN SOLUTION\n    x = 1\n    # END SOLUTION\n",
        3,
        "class A without a body",
    ),
    "class emptied by two": (
        "class A:\n    # BEGIN SOLUTION\n    x = 1\n    # END SOLUTION\n"
        "    # BEGIN SOLUTION\n    y = 1\n    # END SOLUTION\n",
        3,
        "class A without a body",
    ),
    "module's branch without a body": (
        "if A:\n    # BEGIN SOLUTION\n    x = 1\n    # END SOLUTION\n",
        3,
        "without a body",
    ),
    "stub does not compile": (
        "def f(y):\n    if y:\n        # BEGIN SOLUTION\n        x = 1\n"
        "        # END SOLUTION\n\n    def g():\n        nonlocal x\n",
        3,
        "would not compile",
    ),
    "swallowed by an except": (
        "def f(x):\n    try:\n        y = 1\n        # BEGIN SOLUTION\n        return x\n"
        "        # END SOLUTION\n    except Exception:\n        return y\n",
        4,
        "swallowed by the except on line 7",
    ),
    "source does not compile": ("def f(:\n", 1, "does not compile"),
    "source does not tokenize": ("x = (\n", 1, "does not compile"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_with_its_line(name):
    source, line, text = FAULTS[name]
    found = faults_of(source)
    assert any(fault.startswith(f"x.py:{line}: ") and text in fault for fault in found), found


def test_what_is_wrong_is_said_once():
    [fault] = faults_of("class A:\n    # BEGIN SOLUTION\n    x = 1\n    # END SOLUTION\n")
    assert fault == "x.py:3: the stub leaves class A without a body"


def test_bytes_that_are_no_text_are_a_fault():
    [fault] = make_stub(b"x = 1\ny = '\xff'\n", "x.py")[1]
    assert str(fault).startswith("x.py:2: not UTF-8")


# --- the two trees -----------------------------------------------------------------------------

GOOD = "def f():\n    # BEGIN SOLUTION\n    return 1\n    # END SOLUTION\n"
STUB = "def f():\n    raise NotImplementedError\n"


def write(root, files: dict[str, str]):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def root(tmp_path):
    files = {
        "solutions/__init__.py": "",
        f"{UNIT}/__init__.py": '"""Attention."""\n',
        f"{UNIT}/kv_cache.py": GOOD,
        f"{UNIT}/review.toml": "x = 1\n",
        f"{UNIT}/__pycache__/kv_cache.cpython-311.py": "not python (",
        "assignment/__init__.py": "# by hand\n",
        "assignment/provided/lab.py": "# by hand\n",
    }
    write(tmp_path, files)
    return tmp_path


@pytest.fixture
def run(capsys):
    def run(root, *arguments):
        code = stubs.main(list(arguments), root)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def tree(root, folder="assignment"):
    files = (path for path in (root / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(root / folder)): path.read_text() for path in files}


def test_write_then_check(root, run):
    assert run(root)[0] == 0
    assert tree(root) == {
        "__init__.py": "# by hand\n",
        "provided/lab.py": "# by hand\n",
        "attention/__init__.py": '"""Attention."""\n',
        "attention/kv_cache.py": STUB,
    }
    assert run(root, "--check") == (0, "stubs: in step with solutions/\n")
    before = (root / "assignment/attention/kv_cache.py").stat().st_mtime_ns
    assert run(root) == (0, "stubs: 0 written, 0 removed\n")
    assert (root / "assignment/attention/kv_cache.py").stat().st_mtime_ns == before


ANSWERS = """\
# A sheet.
student = "me"

[q1]  # One log
ttft   = "0.4 s"  # s
codes  = [1, 2]  # a list
limit  = 3
"""


def test_a_file_of_answers_becomes_an_empty_one(root, run):
    write(root, {"solutions/review.toml": ANSWERS})
    assert run(root)[0] == 0
    sheet = root / "assignment/review.toml"
    assert sheet.read_text() == (
        '# A sheet.\nstudent = ""\n\n[q1]  # One log\n'
        'ttft   = ""  # s\ncodes  = ""  # a list\nlimit  = ""\n'
    )
    sheet.write_text(sheet.read_text().replace('student = ""', 'student = "x"'))
    code, output = run(root, "--check")
    assert code == 1 and '-student = "x"' in output
    (root / "solutions/review.toml").unlink()
    assert run(root) == (0, "stubs: 0 written, 1 removed\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [("ttft = ", "not valid TOML"), ("codes = [\n  1,\n]\n", "on one line"),
     ('a = """\nx"""\n', "on one line"), ("a.b = 3\n", "on one line"), ("[q]\na = {b = 1}\n", "")],
)  # fmt: skip
def test_answers_that_would_be_left_are_a_fault(root, run, text, said):
    write(root, {"solutions/review.toml": text})
    code, output = run(root)
    assert code == (1 if said else 0) and said in output
    assert (root / "assignment/review.toml").exists() is not bool(said)


def test_check_shows_drift_and_writes_nothing(root, run):
    run(root)
    (root / "assignment/attention/kv_cache.py").write_text(STUB + "X = 1\n")
    (root / "assignment/attention/__init__.py").unlink()
    before = tree(root)
    code, output = run(root, "--check")
    assert code == 1 and tree(root) == before
    assert "-X = 1" in output and '+"""Attention."""' in output and "/dev/null" in output
    assert "2 files out of step" in output


def test_stale_stub_is_reported_then_removed(root, run):
    run(root)
    write(root, {"assignment/attention/old.py": STUB, "assignment/gone/older.py": STUB})
    code, output = run(root, "--check")
    assert code == 1 and "attention/old.py" in output and "gone/older.py" in output
    assert run(root) == (0, "stubs: 0 written, 2 removed\n")
    assert not (root / "assignment/attention/old.py").exists()
    assert run(root, "--check")[0] == 0


def test_all_faults_are_listed_and_nothing_is_written(root, run):
    run(root)
    write(
        root,
        {
            f"{UNIT}/kv_cache.py": GOOD + "X = 1\n",
            f"{UNIT}/a.py": "# END SOLUTION\n#begin solution\n",
            f"{UNIT}/b.py": "# BEGIN SOLUTION\n",
            f"{UNIT}/deep/c.py": "x = 1\n",
        },
    )
    before = tree(root)
    for arguments in ([], ["--check"]):
        code, output = run(root, *arguments)
        lines = output.splitlines()
        assert code == 1 and tree(root) == before
        assert [line.split(": ")[0] for line in lines[:4]] == [
            f"{UNIT}/a.py:1",
            f"{UNIT}/a.py:2",
            f"{UNIT}/b.py:1",
            f"{UNIT}/deep/c.py:1",
        ]


@pytest.mark.parametrize("left", [[], ["solutions/__init__.py"], [f"{UNIT}/review.toml"]])
def test_no_source_at_all_removes_no_stub(root, run, left):
    run(root)
    before = tree(root)
    shutil.rmtree(root / "solutions")
    write(root, dict.fromkeys(left, ""))
    for arguments in ([], ["--check"]):
        code, output = run(root, *arguments)
        assert code == 1 and tree(root) == before
        assert output == (
            "solutions: no Python file in it; expected <unit>/<module>.py\n"
            "stubs: 1 fault, nothing written\n"
        )


@pytest.mark.parametrize("folder", [UNIT, "assignment/attention"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_is_a_fault(root, run, folder, make):
    run(root)
    make(root / folder / "odd.py")
    code, output = run(root)
    assert code == 1 and output.splitlines()[0] == f"{folder}/odd.py: not a regular file"


def test_a_link_is_replaced_not_written_through(root, run):
    write(root, {"elsewhere.py": "kept\n", "assignment/attention/x.py": ""})
    target = root / "assignment/attention/kv_cache.py"
    target.symlink_to(root / "elsewhere.py")
    run(root)
    assert (root / "elsewhere.py").read_text() == "kept\n"
    assert target.read_text() == STUB and not target.is_symlink()


def test_the_repository_is_in_step():
    changes, faults = stubs.plan()
    assert faults == []
    assert [change.path for change in changes] == [], "run `make stubs`"
