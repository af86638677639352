"""Execute the notebooks and keep what they show: `make notebooks`.

    python notebooks/execute.py [--check] [NOTEBOOK …]

Each notebook runs from its first cell to its last, in this Python and from its own folder, as in
Jupyter. The outputs are written back into the file, without anything that differs from run to run
(times, random ids, versions). With --check nothing is written. The first cell that fails ends it:
exit code 1, and a line that names the notebook, the cell and the error.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

try:
    import ipykernel  # noqa: F401  (the kernel is started by name, in another process)
    import nbformat
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from PIL import Image
except ModuleNotFoundError as error:
    sys.exit(f"notebooks need {error.name}: run `make setup EXTRAS=notebooks`")

FOLDER = Path(__file__).resolve().parent
SECONDS_PER_CELL = 300
COLOURS = 64  # of a picture; with all that smooth edges bring, the file is four times as large
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class ThisPython(KernelSpecManager):
    """Starts this very Python, whatever kernels are registered on the machine, or none."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name=kernel_name, language="python")


class CellFailed(Exception):
    """One line: which cell, and the error."""


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run all code cells in `folder`; each cell then holds its outputs."""
    code = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    with TemporaryDirectory() as private, kernel_client(notebook, folder, private) as client:
        for number, index in enumerate(code, start=1):
            heading = heading_of(notebook, index)
            started = time.perf_counter()
            try:
                client.execute_cell(notebook.cells[index], index, execution_count=number)
            except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                where = f"code cell {number} ({heading})"
                raise CellFailed(f"{where}: {describe(error)}") from error
            seconds = time.perf_counter() - started
            print(f"  {number}/{len(code)}  {seconds:5.1f} s  {heading}", flush=True)


@contextmanager
def kernel_client(
    notebook: nbformat.NotebookNode, folder: Path, private: str
) -> Iterator[NotebookClient]:
    """A kernel for one notebook, reached through sockets in a private folder, not the network."""
    manager = AsyncKernelManager(
        kernel_spec_manager=ThisPython(), transport="ipc", connection_file=f"{private}/kernel"
    )
    client = NotebookClient(
        notebook,
        km=manager,
        resources={"metadata": {"path": str(folder)}},
        timeout=SECONDS_PER_CELL,
        coalesce_streams=True,
        record_timing=False,
    )
    # Nobody's own IPython start-up files or settings decide what the notebooks show.
    with client.setup_kernel(cleanup_kc=True, env=os.environ | {"IPYTHONDIR": private}):
        yield client


def heading_of(notebook: nbformat.NotebookNode, index: int) -> str:
    """The heading that cell `index` stands under."""
    for cell in reversed(notebook.cells[:index]):
        if cell.cell_type == "markdown" and cell.source.startswith("#"):
            return cell.source.splitlines()[0].lstrip("# ")
    return "no heading"


def describe(error: Exception) -> str:
    if isinstance(error, CellExecutionError):
        return f"{error.ename}: {(error.evalue.splitlines() or [''])[0]}"
    if isinstance(error, CellTimeoutError):
        return f"took more than {SECONDS_PER_CELL} s"
    return "the kernel died"


def normalise(notebook: nbformat.NotebookNode) -> None:
    """Leave only what the code and its results decide, so that running again changes no line."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(METADATA)
    used: set[str] = set()
    for number, cell in enumerate(notebook.cells, start=1):
        cell.metadata = nbformat.from_dict(
            {key: value for key, value in cell.metadata.items() if key == "tags"}
        )
        # From the source: a cell that is moved or added leaves the others' ids alone.
        cell.id = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        if cell.id in used:
            cell.id += f"-{number}"
        used.add(cell.id)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = with_few_colours(output.data["image/png"])


def with_few_colours(png: str) -> str:
    """The picture with a palette; one that has a palette stays as it is."""
    image = Image.open(BytesIO(base64.b64decode(png)))
    if image.mode == "P":
        return png
    file = BytesIO()
    few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(file, "png", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    """All or nothing: an interrupted run leaves the file as it was."""
    new = path.with_suffix(".ipynb.new")
    new.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    os.replace(new, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all in notebooks/")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    paths = options.notebooks or sorted(FOLDER.glob("*.ipynb"))
    if missing := [str(path) for path in paths if not path.is_file()]:
        parser.error(f"no such notebook: {', '.join(missing)}")

    for path in paths:
        print(path.name, flush=True)
        notebook = nbformat.read(path, as_version=4)
        try:
            execute(notebook, path.resolve().parent)
        except CellFailed as failure:
            print(f"{path.name}, {failure}", file=sys.stderr)
            return 1
        if not options.check:
            normalise(notebook)
            write(notebook, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
