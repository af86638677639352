"""A region is refused where a handler around it would swallow the stub's NotImplementedError."""

import pytest

from tests.staff.test_stubs import expect, faults_of, stub_of

REGION = "# BEGIN SOLUTION\n{0}return 1\n{0}# END SOLUTION\n"
IN_TRY = "def f():\n    try:\n        " + REGION.format(" " * 8)
IN_WITH = "def f():\n    with {}:\n        " + REGION.format(" " * 8)


@pytest.mark.parametrize(
    "handlers",
    [
        "except: pass",
        "except BaseException: return 0",
        "except RuntimeError: return 0",  # NotImplementedError is one
        "except NotImplementedError: return 0",
        "except builtins.Exception: return 0",
        "except (KeyError, Exception) as error: return 0",
        "except KeyError: raise\n    except Exception: return 0",
        "except* Exception: pass",
        "except Exception as error: raise ValueError from error",  # "not written" would be lost
        "except Exception:\n        if x: return 0\n        raise",
    ],
)
def test_a_handler_that_would_swallow_the_error_is_refused(handlers):
    [fault] = faults_of(f"{IN_TRY}    {handlers}\n")
    assert fault.startswith("x.py:3: the stub's NotImplementedError would be swallowed by the exc")


@pytest.mark.parametrize(
    "handlers",
    [
        "except (KeyError, ValueError): return 0",
        "except NotImplementedError: raise\n    except Exception: return 0",
        "except BaseException:\n        undo()\n        raise",
        "except getattr(x, 'y'): return 0",
        "finally: undo()",
    ],
)
def test_a_handler_that_lets_the_error_through_is_fine(handlers):
    assert "raise NotImplementedError" in stub_of(f"{IN_TRY}    {handlers}\n")


@pytest.mark.parametrize(
    "manager", ["suppress(Exception)", "open(x), contextlib.suppress(KeyError, RuntimeError) as s"]
)
def test_a_suppress_that_would_swallow_the_error_is_refused(manager):
    [fault] = faults_of(IN_WITH.format(manager))
    assert fault == (
        "x.py:3: the stub's NotImplementedError would be swallowed by the suppress on line 2"
    )


@pytest.mark.parametrize("manager", ["suppress(KeyError)", "suppress", "lock(Exception)"])
def test_other_managers_are_fine(manager):
    assert "raise NotImplementedError" in stub_of(IN_WITH.format(manager))


def test_what_swallows_elsewhere_is_fine():
    expect(
        """
        def f():
            try:
                def inner():
                    # BEGIN SOLUTION
                    return 1
                    # END SOLUTION
            except Exception:
                # BEGIN SOLUTION
                return 2
                # END SOLUTION
            # BEGIN SOLUTION
            try:
                return inner()
            except Exception:
                return 0
            # END SOLUTION
        """,
        """
        def f():
            try:
                def inner():
                    raise NotImplementedError
            except Exception:
                raise NotImplementedError
            raise NotImplementedError
        """,
    )


def test_an_outer_try_and_a_deep_region_are_seen():
    [fault] = faults_of(
        """
        def f(x):
            try:
                for y in x:
                    if y:
                        # BEGIN SOLUTION
                        return y
                        # END SOLUTION
            except Exception:
                return 0
        """
    )
    assert fault.startswith("x.py:5: ") and "line 8" in fault
