"""Running a long command: its output in a log, one live line for a person, reasons for failure."""

import glob
import os
import re
import shutil
import subprocess
import sys
import threading
import time

LOG = os.path.join("build", "setup.log")
PACKAGES = os.path.join(".venv", "lib", "python*", "site-packages", "*.dist-info")

# pip prints this when everything is downloaded; before, it has changed nothing.
INSTALLING = "Installing collected packages:"

# What pip prints, and what it means. The first that matches counts.
REASONS = [
    (
        r"No space left on device",
        "the disk is full (or the one for temporary files, which TMPDIR names)",
    ),
    (
        r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError"
        r"|Max retries exceeded|Network is unreachable|Temporary failure in name resolution"
        r"|Connection (?:refused|broken|reset)|RemoteDisconnected|SSLError",
        "the package index could not be reached: is there a network, or a proxy to set?",
    ),
    (r"No matching distribution found for ([^\s;]+)", "there is no {} for this Python and system"),
    (r"(?mi)^error: (.*[^\s.])", "pip says: {}"),
]


def explain(output):
    """Why pip failed, in one line."""
    for pattern, meaning in REASONS:
        match = re.search(pattern, output)
        if match:
            return meaning.format(*match.groups())
    return "pip failed"


class Status:
    """A line that is redrawn while a command works, if a person is watching."""

    def __init__(self, root):
        self.text, self.total = "asking the package index", 0
        self.packages = os.path.join(root, PACKAGES)
        self.since, self.done = time.time(), threading.Event()
        self.thread = threading.Thread(target=self.redraw, daemon=True)

    def follow(self, line):
        """Take in one line of pip's output."""
        if line.strip().startswith(("Collecting ", "Downloading ", "Using cached ")):
            self.text = line.strip()
        elif line.startswith(INSTALLING):
            self.total = len(glob.glob(self.packages)) + line.count(",") + 1

    def redraw(self):
        while not self.done.wait(0.5):
            if self.total:
                self.text = f"unpacked {len(glob.glob(self.packages))} of {self.total} packages"
            width = shutil.get_terminal_size().columns - 1
            line = f"  {time.time() - self.since:4.0f} s  {self.text}"
            print("\r" + line[:width].ljust(width), end="", file=sys.stderr, flush=True)
        print("\r\033[K", end="", file=sys.stderr, flush=True)

    def __enter__(self):
        if sys.stderr.isatty():
            self.thread.start()
        return self

    def __exit__(self, *error):
        self.done.set()
        if self.thread.is_alive():
            self.thread.join()


def run(command, root, lock=None, when=None):
    """Run `command`; returns (whether it went well, its output).

    `when`: {words: what to call, once, when a line has them}. The command inherits the lock: if we
    are killed, the next set-up waits until it has ended.
    """
    when, output = dict(when or {}), []
    with open(os.path.join(root, LOG), "a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n")
        log.flush()
        process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[lock.fileno()] if lock else [],
        )
        try:
            with Status(root) as status:
                for line in (raw.decode("utf-8", "replace") for raw in process.stdout):
                    for words in [words for words in when if words in line]:
                        when.pop(words)()
                    output.append(line)
                    log.write(line)
                    status.follow(line)
            return process.wait() == 0, "".join(output)
        except BaseException:
            process.terminate()
            process.wait()
            raise
