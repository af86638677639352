"""Files written under names that we made, with modes that we chose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Write each target ("attention/kv_cache.py") below `folder`, which is ours alone."""
    for target, data in files.items():
        path = folder / target
        for parent in reversed(path.relative_to(folder).parents[:-1]):
            (folder / parent).mkdir(exist_ok=True)
            (folder / parent).chmod(0o755)
        with path.open("xb") as file:
            file.write(data)
        path.chmod(0o644)
