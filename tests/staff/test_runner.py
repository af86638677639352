"""Three outcomes of a test: passed, failed, and spoilt by the grader, which charges nobody."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.grading.submission import REPOSITORY

PROBLEM = "attention.kv_cache"
# The runner calls pytest, so it runs in a process of its own; `accident` happens in there.
SCRIPT = """
import json, os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.grading.transport import forkserver
server = None
seen = []

def kill_the_zygote():
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = str(server.folder) in (folder / "cmdline").read_text()
            ours and os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            pass

def after(test):
    seen.append(test)
    {accident}

{before}
server = forkserver.ForkServer()
from tests.grading.runner import run
outcome = run({submission!r}, problems=[{problem!r}], server=server, seed=7, on_test=after)
records = [(r.test, r.outcome, r.message) for r in outcome.records]
print(json.dumps([records, outcome.faults, os.path.exists(server.folder)]))
"""


def grade(submission: Path | str, accident: str = "pass", before: str = "") -> list:
    """Records (test, outcome, message), the suite's faults, and whether anything was left."""
    script = SCRIPT.format(
        root=str(REPOSITORY),
        submission=str(submission),
        problem=PROBLEM,
        accident=accident,
        before=before,
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    records, faults, left = json.loads(done.stdout.splitlines()[-1])
    assert not left and len({test for test, _, _ in records}) == len(records)
    return [records, faults]


def outcomes(records: list) -> Counter:
    return Counter(outcome for _, outcome, _ in records)


@pytest.fixture
def forgetful(tmp_path) -> Path:
    """A cache that cannot be rolled back: some tests pass, some fail."""
    tree = shutil.copytree(REPOSITORY / "solutions", tmp_path / "solutions")
    with (tree / "attention" / "kv_cache.py").open("a") as file:
        file.write("\n\nKVCache.truncate = lambda self, lengths: None\n")
    return tree


ONCE = "len(seen) == 5 and kill_the_zygote()"


def test_a_test_that_the_grader_spoilt_is_run_again():
    undisturbed, _ = grade("solutions")
    disturbed, faults = grade("solutions", ONCE)
    assert [r[:2] for r in disturbed] == [r[:2] for r in undisturbed] and faults == []
    assert outcomes(disturbed).keys() == {"passed"}


def test_running_again_hides_no_failure(forgetful):
    undisturbed, _ = grade(forgetful)
    failed = outcomes(undisturbed)["failed"]
    assert 0 < failed < len(undisturbed)
    for accident in (ONCE, "seen[-1].count('truncate') and len(seen) < 40 and kill_the_zygote()"):
        disturbed, _ = grade(forgetful, accident)
        assert outcomes(disturbed)["failed"] + outcomes(disturbed)["grader error"] >= failed
        again = {r[0]: r[1] for r in disturbed}
        assert all(
            again[test] != "passed" for test, outcome, _ in undisturbed if outcome == "failed"
        )


COUNTS = """
calls = 0
class KVCache:
    def __init__(self, *args, **kwargs):
        global calls
        calls += 1
        raise {error}
"""


@pytest.mark.parametrize(
    ("error", "kept"),
    [("NotImplementedError(f'{calls} is not written yet')", True), ("ValueError(calls)", False)],
)
def test_a_child_is_kept_after_a_stub_and_not_after_another_failure(tmp_path, error, kept):
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "kv_cache.py").write_text(COUNTS.format(error=error))
    records, _ = grade(tmp_path)
    messages = [message for _, _, message in records]
    counts = [int(n) for message in messages for n in re.findall(r"\d+", message)[:1]]
    assert len(counts) == len(records) > 30
    assert len(set(counts)) == len(counts) if kept else max(counts) < 5  # of one test alone


def test_a_grader_that_cannot_work_charges_nobody():
    records, faults = grade("solutions", before="forkserver._BOOT = 'raise SystemExit(1)'")
    assert outcomes(records).keys() == {"grader error"} and faults == []
    assert all("zygote" in message for _, _, message in records)
