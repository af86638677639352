"""`make memory`: what it prints, against counts by hand, and what it says of a wrong call."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assignment.provided.lab import CHIPS
from assignment.provided.models.smollm2 import ModelNotAvailable, load_smollm2

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "notebooks"))
from model_sizes import MODELS  # noqa: E402

sys.path.pop(0)

FORMATS = [
    (weights, cache) for weights in ("BF16", "INT8", "INT4", "INT3") for cache in ("BF16", "INT8")
]


CALLS = {
    "llama": ["--batch", "32"],
    "too large": ["--model", "llama-3-70b", "--batch", "100"],
    "window": ["--model", "mistral-7b", "--length", "4096"],
    "eight windows": ["--model", "mistral-7b", "--length", "32768"],
    "80 columns": ["--model", "smollm2", "--batch", "64"],
}
WRONG = [
    (["--model", "gpt"], "invalid choice: 'gpt' (choose from"),
    (["--chip", "abacus"], "invalid choice: 'abacus' (choose from"),
    (["--length", "0"], "--length must be at least 1, got 0"),
    (["--batch", "-3"], "--batch must be at least 1, got -3"),
    (["--length", "long"], "invalid int value: 'long'"),
]
# All calls in one process: most of one goes into loading torch.
DRIVER = """
import contextlib, io, json, os, sys
sys.path.insert(0, "notebooks")
import memory
answers = []
for columns, arguments in json.loads(sys.argv[1]):
    os.environ["COLUMNS"], sys.argv = str(columns), ["memory.py", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = memory.main()
        except SystemExit as end:
            code = end.code
    answers.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""


def python(*command, folder=REPOSITORY):
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def answers():
    """(exit code, output, errors) of all CALLS, by name, and then of all WRONG ones."""
    asked = [(80 if name == "80 columns" else 200, call) for name, call in CALLS.items()]
    asked += [(200, call) for call, _ in WRONG]
    run = python("-c", DRIVER, json.dumps(asked))
    assert run.returncode == 0, run.stderr
    names = [*CALLS, *(" ".join(call) for call, _ in WRONG)]
    return dict(zip(names, json.loads(run.stdout), strict=True))


@pytest.fixture
def llama(answers):
    """Llama 2 13B on an H100 with 1024 tokens, and a batch of 32 asked for."""
    code, text, errors = answers["llama"]
    assert (code, errors) == (0, "")
    return text


def rows(text: str) -> dict[tuple[str, str], list[str]]:
    """(weights, cache) -> the other cells."""
    lines = [line.split() for line in text.splitlines()]
    return {
        (cells[0], cells[1]): cells[2:]
        for cells in lines
        if len(cells) > 5 and (cells[0], cells[1]) in FORMATS
    }


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.replace(",", "")) for cell in cells]


def test_all_pairs_of_formats_are_there_in_order(llama):
    assert list(rows(llama)) == FORMATS
    assert "llama-2-13b, 13,015 million weights, on one H100 SXM (80 GB)" in llama
    assert "config.json of meta-llama/Llama-2-13b-hf" in llama
    assert CHIPS["H100"].source in llama


def test_in_16_bits_it_is_what_every_text_gives(llama):
    """26.0 GB; 819,200 bytes a token; 64 sequences; 79,717,990,400 bytes a step at 64."""
    bits, gigabytes, kept, most, one, asked, full = numbers(rows(llama)["BF16", "BF16"])
    assert (bits, gigabytes, kept, most) == (16, 26, 838.9, 64)
    weights, each = 26_030_899_200, 838_860_800
    for shown, batch in ((one, 1), (asked, 32), (full, 64)):
        assert shown == round(batch * 3.35e12 / (weights + batch * each))


def test_codes_carry_their_scales_and_zero_points(llama):
    """Blocks of 40 · (4·5120² + 3·5120·13824) weights; embedding and head, 2·32000·5120, at 16."""
    blocks, tables = 40 * (4 * 5120**2 + 3 * 5120 * 13_824), 2 * 32_000 * 5120
    down = 40 * 5120 * 13_824  # rows of 13,824; all others have 5120
    overhead = {
        "INT8": 8 * blocks + 16 * ((blocks - down) / 5120 + down / 13_824),
        "INT4": (4 + 20 / 128) * blocks,
        "INT3": (3 + 19 / 128) * blocks,
    }
    for name, bits in overhead.items():
        shown = numbers(rows(llama)[name, "BF16"])
        total = bits + 16 * tables
        assert shown[0] == pytest.approx(total / (blocks + tables), abs=0.006)
        assert shown[1] == pytest.approx(total / 8e9, rel=0.005)


def test_int8_keys_have_a_scale_for_each_token_and_head(llama):
    for name in ("BF16", "INT4"):
        wide, narrow = (numbers(rows(llama)[name, cache]) for cache in ("BF16", "INT8"))
        assert narrow[2] == pytest.approx(wide[2] * (8 + 16 / 128) / 16, rel=1e-3)
        assert narrow[3] == pytest.approx(wide[3] * 16 / 8.125, abs=2)


def test_what_does_not_fit_has_no_speed(answers):
    table = rows(answers["too large"][1])
    assert table["BF16", "INT8"][3:] == ["0", "-", "-", "-"]
    most = numbers(table["INT8", "INT8"][3:4])[0]
    assert 0 < most < 100 and table["INT8", "INT8"][5] == "-"
    assert table["INT4", "BF16"][5] != "-"


def test_a_window_bounds_what_is_kept(answers):
    tables = [rows(answers[name][1]) for name in ("window", "eight windows")]
    assert [table["BF16", "BF16"][2] for table in tables] == ["536.9", "536.9"]


def test_it_fits_a_terminal_of_80_columns(answers):
    code, text, _ = answers["80 columns"]
    assert code == 0 and list(rows(text)) == FORMATS
    assert "…" not in text and max(map(len, text.splitlines())) <= 80


# ---- the sizes


@pytest.mark.parametrize(
    ("name", "weights"),  # what the models' pages give, in billions
    [
        ("smollm2", 0.1345),
        ("tinyllama", 1.100),
        ("llama-2-7b", 6.738),
        ("llama-2-13b", 13.016),
        ("llama-2-70b", 68.977),
        ("llama-3-8b", 8.030),
        ("llama-3-70b", 70.554),
        ("llama-3.2-1b", 1.236),
        ("mistral-7b", 7.242),
    ],
)
def test_a_model_has_as_many_weights_as_its_page_says(name, weights):
    c = MODELS[name].config
    attention = 2 * c.d_model * (c.num_heads + c.num_kv_heads) * c.head_dim
    layers = c.num_layers * (attention + 3 * c.d_model * c.d_ff + 2 * c.d_model)
    tables = (1 if c.tie_embeddings else 2) * c.vocab_size * c.d_model
    assert (layers + tables + c.d_model) / 1e9 == pytest.approx(weights, rel=2e-4)


def test_every_model_is_tested_above():
    assert set(
        re.findall(r'^        \("([\w.-]+)", [\d.]+\),$', Path(__file__).read_text(), re.M)
    ) == set(MODELS)


def test_smollm2_is_the_one_that_is_loaded():
    try:
        model, _ = load_smollm2()
    except ModelNotAvailable:
        pytest.skip("needs SmolLM2: make model")
    names = ("vocab_size", "num_layers", "d_model", "num_heads", "num_kv_heads", "head_dim", "d_ff")
    ours, theirs = MODELS["smollm2"].config, model.config
    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]
    assert ours.tie_embeddings == theirs.tie_embeddings


# ---- what goes wrong


@pytest.mark.parametrize(("call", "message"), WRONG, ids=lambda value: str(value)[:20])
def test_a_wrong_call_says_what_is_right(answers, call, message):
    code, text, errors = answers[" ".join(call)]
    assert (code, text) == (2, "")
    assert message in errors and "Traceback" not in errors


@pytest.mark.parametrize(
    ("solved", "file", "function"),
    [
        ([], "accounting/memory.py", "parameters"),
        (
            ["accounting/memory.py", "accounting/latency.py"],
            "compression/quantization.py",
            "bits_per_weight",
        ),
    ],
)
def test_a_stub_is_named(tmp_path, solved, file, function):
    for part in ("assignment", "notebooks", "tests/grading"):
        shutil.copytree(REPOSITORY / part, tmp_path / part)
    shutil.copy(REPOSITORY / "tests/__init__.py", tmp_path / "tests")
    for path in solved:
        shutil.copy(REPOSITORY / "solutions" / path, tmp_path / "assignment" / path)
    run = python("notebooks/memory.py", folder=tmp_path)
    assert run.returncode == 1
    assert run.stderr == (
        f"memory: assignment/{file}: `{function}` is not written yet; the table is made by "
        "your own accounting.memory, accounting.latency and compression.quantization\n"
    )


def test_make_passes_its_variables_on():
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    asked = ["MODEL=llama-3-8b", "CHIP=L4", "LENGTH=99", "BATCH=3"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", "memory", *asked]
    text = subprocess.run(
        command, cwd=REPOSITORY, env=environ, capture_output=True, text=True
    ).stdout
    words = " ".join(text.replace("\\\n", " ").split())
    assert '--model "llama-3-8b" --chip "L4" --length "99" --batch "3"' in words
