"""How the set-up talks: lines on stderr, and one kind of error."""

import sys


class Missing(Exception):
    """What the machine lacks, as one line for a person."""


def say(line):
    print(line, file=sys.stderr, flush=True)
