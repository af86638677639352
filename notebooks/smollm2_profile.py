"""Where the time of an engine's step goes, by kind of work.

    products      the products with the model's weights
    elementwise   the rest of the model: norms, rotations, activations, sums
    attention     writing keys and values into their blocks, gathering them, and attending
    sampling      tensors outside the model: the step's indices, the draw of its tokens
    scheduler     planning in Python: who comes next, and into which blocks
    python        Python everywhere else, between one operation and the next

PyTorch's profiler says how long each operation took by itself, on the thread that called it. It
makes small operations longer than they are: `seconds` is the same step timed without it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from statistics import median

from torch.profiler import ProfilerActivity, profile, record_function

from assignment.provided.models import Llama
from assignment.provided.serving import ModelParts, Sampling
from submission.serving.engine import Engine, gather_attention, store_kv

KINDS = ("products", "elementwise", "attention", "sampling", "scheduler", "python")
WARM, STEPS = 3, 10
OF_SCOPE = {"model": "elementwise", "attention": "attention", "scheduler": "scheduler"}
SCOPES = (*OF_SCOPE, "step")


def profile_step(model: Llama, sequences: int, prompt: list[int], num_blocks: int) -> dict:
    """Decode steps of so many sequences behind the same prompt: seconds, and each kind's share."""
    engine = _engine(model, sequences, num_blocks)
    for _ in range(sequences):
        engine.submit(prompt, Sampling(max_new_tokens=2 * (WARM + STEPS) + 1))
    while engine.step().num_tokens != sequences:
        """Until all are past their prompts."""
    seconds = [_seconds(engine.step) for _ in range(WARM + STEPS)][WARM:]
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(STEPS):
            with record_function("step"):
                engine.step()
    spent = Counter()
    for event in profiled.events():
        if kind := _kind(event):
            spent[kind] += event.self_cpu_time_total
    row = {"sequences": sequences, "held": len(prompt), "seconds": round(median(seconds), 5)}
    return row | {kind: round(spent[kind] / spent.total(), 3) for kind in KINDS}


def _engine(model: Llama, sequences: int, num_blocks: int) -> Engine:
    """An engine whose parts say their names to the profiler."""
    parts = ModelParts(
        model.config, model.dtype, _named("model", model.hidden), _named("model", model.logits)
    )
    engine = Engine(
        parts,
        num_blocks,
        max_sequences=sequences,
        prefix_caching=False,
        attention=_named("attention", gather_attention),
        store=_named("attention", store_kv),
    )
    for method in ("schedule", "commit"):
        setattr(engine.scheduler, method, _named("scheduler", getattr(engine.scheduler, method)))
    return engine


def _named(name: str, work: Callable) -> Callable:
    def named(*arguments):
        with record_function(name):
            return work(*arguments)

    return named


def _kind(event) -> str | None:
    """Of the time that an operation, or Python inside a named part, took by itself."""
    names, above = [event.name], event.cpu_parent
    while above is not None:
        names.append(above.name)
        above = above.cpu_parent
    if "step" not in names:
        return None
    scope = next(name for name in names if name in SCOPES)
    if event.name in SCOPES:
        return "scheduler" if scope == "scheduler" else "python"
    if scope == "model" and "aten::linear" in names:
        return "products"
    return OF_SCOPE.get(scope, "sampling")


def _seconds(work: Callable) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
