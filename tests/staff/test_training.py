"""The given training loop: its batches, its loss, and that a resumed run is the same run."""

import os
import random

import pytest
import torch
from torch import nn
from torch.optim import SGD

from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.training import (
    Batches,
    next_token_loss,
    optimizers,
    progress,
    train,
)

BEGIN, END = 1, 2
CONFIG = LlamaConfig(
    vocab_size=23, num_layers=2, d_model=12, num_heads=2, num_kv_heads=1, head_dim=6, d_ff=20
)
DRAW = random.Random(4)
DOCUMENTS = [
    [BEGIN, *(DRAW.randrange(3, 23) for _ in range(DRAW.randrange(1, 20))), END] for _ in range(300)
]
STEPS = 11


# The loop


class Run:
    """One training of a small Llama, and what its loss saw."""

    def __init__(self, seed=0, learning_rate=0.02):
        self.model = Llama(CONFIG, seed=seed)
        self.optimizers = optimizers(self.model, learning_rate)
        self.batches = Batches(DOCUMENTS[:10], 3, seed=5)
        self.steps, self.rates, self.stop_before = [], [], None

    def loss(self, step):
        if step == self.stop_before:
            raise KeyboardInterrupt
        self.steps.append(step)
        self.rates.append([o.param_groups[0]["lr"] for o in self.optimizers])
        tokens, real = self.batches(step)
        return next_token_loss(self.model(tokens), tokens, real)

    def train(self, checkpoint=None, steps=STEPS, **options):
        options = {"warm_up": 3, "save_every": 4, "recipe": "random rows", **options}
        return train(
            self.model, self.loss, self.optimizers, steps, checkpoint=checkpoint, **options
        )

    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def test_training_learns():
    run = Run()
    losses = run.train(steps=200)
    assert len(losses) == 200 and losses[-1] < 0.3 * losses[0]


def test_the_callback_hears_every_step_after_its_update():
    run, heard = Run(), []
    before = run.weights()

    def on_step(step, loss):
        assert not torch.equal(run.weights(), before)
        heard.append((step, loss))

    losses = run.train(on_step=on_step)
    assert heard == list(enumerate(losses)) and run.steps == list(range(STEPS))


def test_the_learning_rate_rises_to_each_optimizers_own_and_falls_to_almost_zero():
    model = nn.Linear(2, 1, bias=False)
    sgd = [SGD([model.weight], lr=1.0), SGD([model.weight], lr=10.0)]
    rates = []

    def loss(step):
        rates.append([optimizer.param_groups[0]["lr"] for optimizer in sgd])
        return model.weight.sum() * 1e-3

    train(model, loss, sgd, 7, warm_up=3)
    shares = [1 / 4, 2 / 4, 3 / 4, 1, 3 / 4, 2 / 4, 1 / 4]
    assert rates == [pytest.approx([share, 10 * share]) for share in shares]

    rates.clear()
    for optimizer in sgd:
        optimizer.param_groups[0]["lr"] = 8.0
    train(model, loss, sgd, 4)
    assert rates == [[8, 8], [6, 6], [4, 4], [2, 2]]


def test_large_gradients_are_clipped_together_and_small_ones_are_not():
    model = nn.Linear(3, 4)
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    scale = [100.0, 0.01]
    train(
        model,
        lambda step: scale[step] * (model.weight.sum() + 2 * model.bias.sum()),
        [SGD(model.parameters(), lr=1.0)],
        2,
    )
    norm = (12 + 4 * 2**2) ** 0.5
    torch.testing.assert_close(model.weight, torch.full((4, 3), -1 / norm - 0.01 / 2))
    torch.testing.assert_close(model.bias, torch.full((4,), -2 / norm - 0.02 / 2))


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(lambda weight: weight.sum() * float("nan"), id="loss nan"),
        pytest.param(lambda weight: weight.sum() + float("inf"), id="loss infinite"),
        pytest.param(lambda weight: (weight * 0).square().sum().sqrt(), id="gradient nan"),
    ],
)
def test_what_is_not_finite_stops_the_run_before_it_spoils_the_weights(bad):
    model = nn.Linear(2, 1, bias=False)
    before = []

    def loss(step):
        before[:] = model.weight.flatten().tolist()
        return model.weight.sum() if step < 5 else bad(model.weight)

    with pytest.raises(FloatingPointError, match="step 5"):
        train(model, loss, [SGD(model.parameters(), lr=0.1)], 9)
    assert model.weight.flatten().tolist() == before


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda weight: weight.sum(0), r"loss.*\[2\]"),
        (lambda weight: torch.zeros(()), "loss.*depends on the model"),
    ],
)
def test_a_loss_that_cannot_be_trained_on_is_refused(loss, message):
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match=message):
        train(model, lambda step: loss(model.weight), [SGD(model.parameters(), lr=0.1)], 1)


@pytest.mark.parametrize(("steps", "warm_up"), [(5, 5), (5, -1), (0, 0)])
def test_a_warm_up_that_does_not_fit_is_refused(steps, warm_up):
    with pytest.raises(ValueError, match="warm_up"):
        Run().train(steps=steps, warm_up=warm_up)


# Stopping and resuming


@pytest.fixture(scope="module")
def whole():
    """The run that nobody stopped. It writes no checkpoint: saving must change nothing either."""
    run = Run()
    run.losses = run.train()
    return run


def stopped(checkpoint, before):
    """A run that Ctrl-C stopped when it asked for the loss of step `before`."""
    run = Run()
    run.stop_before = before
    with pytest.raises(KeyboardInterrupt):
        run.train(checkpoint)
    return run


@pytest.mark.parametrize("before", range(STEPS))
def test_a_resumed_run_is_the_run_that_nobody_stopped(tmp_path, whole, before):
    path = tmp_path / "new folder" / "run.pt"
    stopped(path, before)
    resumed = Run()
    losses = resumed.train(path)
    first = before // 4 * 4  # saved after steps 3 and 7
    assert resumed.steps == list(range(first, STEPS))
    assert resumed.rates == whole.rates[first:]
    assert losses == whole.losses
    assert torch.equal(resumed.weights(), whole.weights())


def test_a_run_may_be_stopped_twice(tmp_path, whole):
    stopped(tmp_path / "run.pt", 6)
    stopped(tmp_path / "run.pt", 10)
    assert Run().train(tmp_path / "run.pt") == whole.losses


def test_the_callback_of_a_resumed_run_hears_the_steps_numbers(tmp_path):
    stopped(tmp_path / "run.pt", 9)
    heard = []
    Run().train(tmp_path / "run.pt", on_step=lambda step, loss: heard.append(step))
    assert heard == [8, 9, 10]


def test_a_finished_run_is_not_trained_again(tmp_path, whole):
    Run().train(tmp_path / "run.pt")
    again = Run()
    assert again.train(tmp_path / "run.pt") == whole.losses and again.steps == []
    assert torch.equal(again.weights(), whole.weights())


@pytest.mark.parametrize("moment", ["while it is written", "before it is renamed"])
def test_stopped_while_saving_the_last_checkpoint_stays(tmp_path, monkeypatch, whole, moment):
    path, name = tmp_path / "run.pt", "save" if moment == "while it is written" else "replace"
    module = torch if name == "save" else os
    real, calls = getattr(module, name), []

    def interrupted(*given):
        calls.append(given)
        if len(calls) < 2:
            return real(*given)
        if name == "save":
            given[1].write_bytes(b"half a checkpoint")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        Run().train(path)
    monkeypatch.undo()

    resumed = Run()
    assert resumed.train(path) == whole.losses and resumed.steps[0] == 4
    assert torch.equal(resumed.weights(), whole.weights())
    assert os.listdir(tmp_path) == ["run.pt"]


@pytest.mark.parametrize(
    ("made", "trained", "differs"),
    [
        ({"seed": 1}, {}, "initial weights"),
        ({"learning_rate": 0.03}, {}, "optimizers"),
        ({}, {"steps": 12}, "steps"),
        ({}, {"warm_up": 2}, "steps"),
        ({}, {"recipe": "other rows"}, "recipe"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(tmp_path, made, trained, differs):
    path, run = tmp_path / "run.pt", Run(**made)
    stopped(path, 6)
    file, before = path.read_bytes(), run.weights()
    with pytest.raises(ValueError, match=f"run.pt.*{differs}.*[Dd]elete"):
        run.train(path, **trained)
    assert path.read_bytes() == file and torch.equal(run.weights(), before) and not run.steps


def test_weights_of_another_shape_are_another_training(tmp_path):
    def one(*shape):
        model = nn.Module()
        model.weight = nn.Parameter(torch.zeros(shape))
        optimizer = SGD(model.parameters(), lr=0.1)
        train(
            model, lambda step: model.weight.sum(), [optimizer], 2, checkpoint=tmp_path / "run.pt"
        )

    one(2, 6)
    with pytest.raises(ValueError, match="initial weights"):
        one(3, 4)


def test_how_often_to_save_may_change_between_stop_and_resume(tmp_path, whole):
    stopped(tmp_path / "run.pt", 6)
    assert Run().train(tmp_path / "run.pt", save_every=1) == whole.losses


def test_modules_of_any_dtype_and_with_buffers_can_be_saved(tmp_path):
    def one():
        torch.manual_seed(0)
        model = nn.Linear(4, 3).to(torch.bfloat16)
        model.register_buffer("scale", torch.tensor(2.0))  # has no axes
        given = torch.ones(5, 4, dtype=torch.bfloat16)
        loss = lambda step: (model(given) * model.scale).square().mean()  # noqa: E731
        return train(model, loss, optimizers(model, 0.01), 3, checkpoint=tmp_path / "run.pt")

    assert one() == one()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_a_checkpoint_that_cannot_be_read_is_refused(tmp_path, content):
    path = tmp_path / "run.pt"
    if content is None:
        torch.save({"something": "else"}, path)
    else:
        path.write_bytes(content)
    with pytest.raises(
        ValueError, match="checkpoint: .*run.pt cannot be read; is it one. Delete it"
    ):
        Run().train(path)


# Progress


@pytest.fixture
def terminal(monkeypatch):
    """terminal(True) makes stderr one in rich's eyes, terminal(False) makes it none."""
    for name in ("FORCE_COLOR", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return lambda yes: monkeypatch.setenv("TTY_COMPATIBLE", str(int(yes)))


def test_where_no_terminal_is_progress_is_a_line_every_tenth(terminal, capsys):
    terminal(False)
    with progress(40, "a small model") as on_step:
        for step in range(40):
            on_step(step, 4 - step / 10)
    out, lines = capsys.readouterr()
    lines = lines.splitlines()
    assert out == "" and len(lines) == 10
    assert lines[0] == "a small model: step 4 of 40, loss 3.700"
    assert lines[-1] == "a small model: step 40 of 40, loss 0.100"


@pytest.mark.parametrize("steps", [1, 3, 11, 99])
def test_the_last_step_always_has_its_line(terminal, capsys, steps):
    terminal(False)
    with progress(steps) as on_step:
        for step in range(steps):
            on_step(step, 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == min(steps, 10) and f"step {steps} of {steps}" in lines[-1]


def test_in_a_terminal_the_bar_shows_step_and_loss_of_a_resumed_run_too(terminal, capsys):
    terminal(True)
    with progress(40, "a small model") as on_step:
        for step in range(30, 40):
            on_step(step, 4 - step / 10)
    shown = capsys.readouterr().err
    assert "a small model" in shown and "40/40" in shown and "loss 0.100" in shown
