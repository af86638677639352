"""Makes `.venv` and keeps it current; `make` runs this before everything else.

    python3 tests/grading/environment [--extras real,docs | all] [--verbose]

PYTHON names the interpreter to use, TORCH_INDEX an index that has torch's CPU build. Prints
nothing when there is nothing to do. This folder uses only the standard library and only what
Python 3.6 can parse: a machine with an old `python3` must get a clear line, not a syntax error.
It is run as a folder, not as a module: then nothing outside it is imported.
"""

import argparse
import os
import sys

import stamps
from telling import Missing, say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def parse(arguments):
    parser = argparse.ArgumentParser(prog="make setup", description="Makes .venv current.")
    parser.add_argument("--extras", default="", help="names with commas between, or all")
    parser.add_argument("--verbose", action="store_true", help="say so when nothing is to do")
    options = parser.parse_args(arguments)
    options.extras = sorted(set(options.extras.replace(",", " ").split()))
    options.python = os.environ.get("PYTHON") or None
    options.torch_index = os.environ.get("TORCH_INDEX") or None
    return options


def asked_version(options):
    """The version of the Python that was asked for by name, or None."""
    if not options.python:
        return None
    from pythons import find_python

    return find_python(options.python).version


def nothing_to_do(root, options, version):
    stamp = stamps.read(root)
    remake = stamps.must_remake(stamp, root, version, options.torch_index)
    return not remake and stamps.is_current(stamp, stamps.fingerprint(root), options.extras)


def tell(root):
    """What `make setup` says at its end."""
    stamp = stamps.read(root)
    extras = ", ".join(stamp["extras"]) or "none"
    say(f".venv is current: Python {stamps.dotted(stamp['python'])}; extras: {extras}")
    if not stamp["triton"]:
        say("no Triton: the kernels unit is unavailable, the rest works")


def main(arguments, root=ROOT):
    options = parse(arguments)
    try:
        version = asked_version(options)
        if not nothing_to_do(root, options, version):
            import steps  # only now: what it needs takes longer to load than the check takes

            with steps.alone(root) as lock:
                if not nothing_to_do(root, options, version):  # another set-up may have done it
                    steps.set_up(root, options, version, lock)
        if options.verbose:
            tell(root)
        return 0
    except Missing as missing:
        say(f"set-up: {missing}")
        return 1
    except OSError as error:  # a full disk, a folder that is not ours
        say(f"set-up: {error}")
        return 1
    except KeyboardInterrupt:
        say("\nset-up: interrupted; the next run makes it good")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
