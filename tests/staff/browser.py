"""Report pages in a headless Chromium: what is where on them, in which colours."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--hide-scrollbars", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--enable-logging=stderr",
)  # fmt: skip
SCHEMES = {"dark": 0, "light": 1}  # as Chromium numbers them
SECONDS = 60

# Each page stands unchanged in a frame of each width, and is read from outside: it runs nothing.
PROBE = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def open_page(address: str, folder: Path, *flags: str, scheme: str = "light") -> subprocess.Popen:
    """Start a Chromium that opens `address`; its profile lies in `folder`."""
    profile = folder / f"profile{len(list(folder.glob('profile*')))}"
    profile.mkdir()
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}"]
    command += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", *flags, address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(browser: subprocess.Popen) -> tuple[str, list[str]]:
    """What it printed, and the lines that pages wrote to the console."""
    try:
        printed, log = browser.communicate(timeout=SECONDS)
    finally:
        browser.kill()
    return printed, [line for line in log.splitlines() if ":CONSOLE" in line]


def examine(pages: dict[str, str], widths: list[int], folder: Path, scheme: str) -> list[dict]:
    """What each page looks like at each width, folded and unfolded."""
    frames = [
        f'<iframe data-page="{name}" style="width:{width}px;height:800px;border:0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
        for name, page in pages.items()
        for width in widths
    ]
    file = folder / f"frames-{scheme}.html"
    file.write_text(
        f"<!doctype html><meta charset=utf-8><body>{''.join(frames)}<script>{PROBE}</script>",
        encoding="utf-8",
    )
    printed, console = finish(open_page(file.as_uri(), folder, "--dump-dom", scheme=scheme))
    assert console == []
    body = re.search(r"<body>(.*)</body>", printed, re.DOTALL)
    assert body, printed[-500:]
    return json.loads(html.unescape(body[1]))
