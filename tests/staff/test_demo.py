"""`make demo`: what it says, and that it is what the models say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assignment.provided.data.stories import sample
from assignment.provided.data.tokenizer import BEGIN, load_tokenizer
from assignment.provided.models import smollm2
from assignment.provided.models.toy import load_toy
from solutions.attention.generate import generate_uncached

REPOSITORY = Path(__file__).resolve().parents[2]
TOKENS = 24

pytest.importorskip("tokenizers", reason='needs tokenizers: pip install ".[real]"')


def python(*command, folder=REPOSITORY, stdin=subprocess.DEVNULL, **environment):
    """Lines are wide, so that none is broken in two."""
    wide = {"OMP_NUM_THREADS": "1", "COLUMNS": "1000", "PYTHONUTF8": "1", **environment}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **wide},
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


def demo(*arguments, **options):
    return python("notebooks/demo.py", *arguments, **options)


def tell(*arguments, **options):
    return demo("--model", "toy", "--tokens", str(TOKENS), "--samples", "2", *arguments, **options)


# ---- SmolLM2


def test_smollm2_answers_and_compares():
    if not smollm2.model_directory().is_dir():
        pytest.skip("needs SmolLM2: make model")
    run = demo("--tokens", "8", "--samples", "2", PROMPT="What is the capital of France?")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("you: What is the capital of France?\nSmolLM2: The capital of ")
    assert "SmolLM2: The capital of France is Paris." in run.stdout
    assert "first token (TTFT)" in run.stdout and "with a KV cache" in run.stdout
    assert "measured at 3 tokens" in run.stdout and "3 of them the same" in run.stdout
    assert "checker" not in run.stdout


def test_smollm2_that_is_not_there_is_one_line(tmp_path):
    run = demo(FAST_INFERENCE_CACHE=str(tmp_path))
    assert run.returncode == 1
    assert "make model" in run.stderr and run.stderr.count("\n") == 1


# ---- the toy model


@torch.no_grad()
def story(beginning, seed=0, temperature=1.0, stories=1):
    """What the toy model tells: the last of so many stories, told one after another."""
    tokenizer, generator = load_tokenizer(), torch.Generator().manual_seed(seed)
    uniforms = [torch.rand(1, TOKENS, generator=generator) for _ in range(stories)]
    prompt = tokenizer.encode(BEGIN + beginning)
    (tokens,) = generate_uncached(
        load_toy("target"),
        [prompt],
        TOKENS,
        temperature=temperature,
        uniforms=uniforms[-1],
        stop_tokens=tokenizer.stop_tokens,
    )
    # A character whose last bytes have not come is not shown.
    return tokenizer.decode(prompt + tokens).rstrip("\N{REPLACEMENT CHARACTER}")


def test_the_toy_goes_on_from_the_prompt_and_is_checked():
    run = tell("--seed", "7", PROMPT="Mara was a baker.")
    assert run.returncode == 0, run.stderr
    told, _, rest = run.stdout.partition("\n\nthe same without a cache …\n")
    assert told == story("Mara was a baker.", seed=7)
    assert told.startswith("Mara was a baker.") and told != story("Mara was a baker.", seed=8)
    assert "first token (TTFT)" in rest and "with a KV cache" in rest
    assert "measured at 3 tokens" in rest and "3 of them the same" in rest
    assert rest.rstrip().splitlines()[-1].startswith("The checker finds wrong: ")  # it is cut off


def test_the_toy_begins_by_itself_and_can_be_greedy():
    run = tell("--temperature", "0")
    assert run.returncode == 0, run.stderr
    assert run.stdout.partition("\n\nthe same")[0] == story("", temperature=0.0)


def test_a_person_may_begin_more_stories():
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"Mara was a baker.\n\n")
        run = tell("--seed", "7", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert run.returncode == 0, run.stderr
    first, second, end = run.stdout.split("begin a story (empty to end): ")
    assert first.startswith(story("", seed=7)) and "The checker finds " in first
    assert second.startswith(story("Mara was a baker.", seed=7, stories=2) + "\n")
    assert " tokens fed, first token" in second and "The checker finds " in second
    assert end == ""


def test_the_checkers_line_is_short():
    right = sample("a story")
    texts = [right, right.replace(" was ", " were ", 1), right[:-1], "yes. " * 5]
    script = "import sys; sys.path[:0] = ['notebooks', '.']; import demo_stories as d; print({})"
    run = python("-c", script.format(f"*map(d.verdict, {texts}), sep='\\n'"))
    fine, wrong, cut, many = run.stdout.splitlines()
    assert fine == "The checker finds nothing wrong."
    assert wrong.startswith("The checker finds wrong: ") and " were " in wrong
    assert cut.startswith("The checker finds wrong: unfinished ")
    assert many.startswith('The checker finds wrong: form "yes.", form "yes.", form "yes.", and ')
    assert many.endswith(" more.")


# ---- what goes wrong


def test_a_prompt_that_the_cache_cannot_hold_is_one_line():
    beginning = " ".join(["Mara was a baker."] * 110)
    tokens = len(load_tokenizer().encode(BEGIN + beginning))
    run = tell("--prompt", beginning)
    assert run.returncode == 1
    assert run.stderr == f"demo: a prompt of {tokens} tokens, and the cache holds 512\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "gpt"), "invalid choice: 'gpt' (choose from"),
        (("--model", "toy", "--tokens", "257"), "--tokens must be 1 to 256"),
    ],
)
def test_a_wrong_call_says_what_is_right(arguments, message):
    run = demo(*arguments)
    assert run.returncode == 2
    assert message in run.stderr and "Traceback" not in run.stderr


def test_a_missing_package_names_the_extra(tmp_path):
    missing = "raise ModuleNotFoundError(\"No module named 'tokenizers'\", name='tokenizers')"
    (tmp_path / "tokenizers.py").write_text(missing)
    run = tell(PYTHONPATH=str(tmp_path))
    assert run.returncode == 1
    assert "make setup EXTRAS=real" in run.stderr and run.stderr.count("\n") == 1


def test_a_stub_is_named(tmp_path):
    for part in ("assignment", "notebooks", "tests/grading"):
        shutil.copytree(REPOSITORY / part, tmp_path / part)
    shutil.copy(REPOSITORY / "tests/__init__.py", tmp_path / "tests")
    run = tell(folder=tmp_path)
    assert run.returncode == 1
    assert run.stderr == (
        "demo: assignment/attention/kv_cache.py: `__init__` is not written yet, "
        "and the demo runs on your own code\n"
    )
