"""compression.distillation: the losses in closed form, their gradients, and the loop."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from assignment.provided.models import Llama as GradersLlama
from assignment.provided.models import LlamaConfig
from submission.compression.distillation import distil, hidden_loss, kd_loss
from submission.provided.models import Llama
from submission.provided.models.llama import torch as their_torch
from tests.compression import oracles_distillation as oracles
from tests.grading.boundary import grad_of, watch
from tests.grading.closeness import assert_close, assert_equal
from tests.grading.refusal import assert_value_error

ROUGH = 1e-5  # of the largest number: a fourth of what may be off. Rounding costs a tenth of that.
INFINITE = math.inf
SHAPES = [(2, 3, 7), (3, 1, 11), (1, 5, 4)]
TEMPERATURES = [1.0, 2.5, 0.4]


def assert_near(got, expected, rounding=0.0, **where):
    """Within a share of the largest number, and `rounding`, which counts where all are small."""
    rough = expected + ROUGH * expected.abs().max() + rounding
    assert_close(got, expected, naive=rough.float(), **where)


def assert_loss(got, student, teacher, temperature=1.0, real=None, *, what):
    expected, _ = oracles.kd_loss(student, teacher, temperature, real)
    rounding = oracles.rounding_of(student, teacher, temperature, real)
    assert_near(got, expected, rounding, what=f"{what}, temperature {temperature:g}")


def some(draw, *shape):
    """A mask where some are real, some not: padding behind each text, the longest in the middle."""
    rows, columns = shape
    lengths = draw.integers(1, columns + 1, rows)
    lengths[rows // 2] = columns
    lengths[0] = max(1, columns - 1)
    return torch.arange(columns) < lengths[:, None]


def logits_of(draw, *shape, scale=2.0):
    return draw.normal(*shape, scale=scale), draw.normal(*shape, scale=scale)


def ragged(draw, *shape, scale=2.0):
    """Student, teacher and mask; what is padding differs from all the rest."""
    student, teacher = logits_of(draw, *shape, scale=scale)
    real = some(draw, *shape[:2])
    for tensor in (student, teacher):
        tensor[~real] = draw.normal(*shape, scale=30.0)[~real]
    return student, teacher, real


@pytest.mark.group("loss")
class TestLoss:
    def test_by_hand(self):
        """¾ against ½ at temperature 1; at temperature 2 the odds of 3 are odds of √3."""
        student, teacher = torch.zeros(1, 1, 2), torch.tensor([[[math.log(3), 0]]])
        for temperature, loss in ((1.0, 0.1308121), (2.0, 0.1453637)):
            what, loss = f"loss by hand, temperature {temperature:g}", torch.tensor(loss).double()
            assert_near(kd_loss(student, teacher, temperature), loss, what=what)

    @pytest.mark.parametrize("shape", SHAPES)
    def test_equals_the_formula(self, draw, shape):
        pair = logits_of(draw, *shape)
        assert_loss(kd_loss(*pair), *pair, what=f"loss of {list(shape)}, by default")
        for temperature in TEMPERATURES:
            got = kd_loss(*pair, temperature)
            assert_loss(got, *pair, temperature, what=f"loss of {list(shape)}")

    @pytest.mark.parametrize("temperature", TEMPERATURES)
    def test_padding_does_not_count(self, draw, temperature):
        student, teacher, real = ragged(draw, 3, 5, 6)
        one = torch.zeros_like(real)
        one[1, 3] = True  # of the longest text
        for mask, what in ((real, "loss of padded texts"), (one, "loss of one real token")):
            given = student, teacher, temperature, mask
            assert_loss(kd_loss(student, teacher, temperature, real=mask), *given, what=what)

    def test_a_student_as_the_teacher(self, draw):
        """Its logits may be shifted, token by token."""
        teacher = draw.normal(2, 4, 9)
        got = kd_loss(teacher + draw.normal(2, 4, 1, scale=5.0), teacher, 1.5)
        assert abs(float(got)) < 1e-5, f"expected 0, got {float(got)}"

    @pytest.mark.parametrize("temperature", [1.0, 3.0])
    def test_logits_far_apart(self, draw, temperature):
        """Where a softmax in float32 is 0, its logarithm is still a number."""
        student, teacher = logits_of(draw, 2, 3, 8, scale=300.0)
        given = student, teacher, temperature
        assert_loss(kd_loss(*given), *given, what="loss of logits far apart")

    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_tokens_that_cannot_come(self, draw, temperature):
        """For the teacher, in places of their own; then for both, as padding of the vocabulary."""
        pair = impossible(draw)
        given = *pair, temperature
        assert_loss(kd_loss(*given), *given, what="loss where the teacher's logits are −∞")
        got = kd_loss(*[pad(tensor, 3) for tensor in pair], temperature)
        assert_loss(got, *given, what="loss where 3 more ids are −∞ for both")

    def test_what_makes_no_sense(self, draw):
        student, teacher = logits_of(draw, 2, 3, 5)
        for temperature in (0.0, -1.0):
            assert_value_error(f"temperature {temperature}", kd_loss, student, teacher, temperature)
        none = torch.zeros(2, 3).bool()
        assert_value_error("no real token", kd_loss, student, teacher, 1.0, none)

    def test_arguments_are_not_changed(self, draw):
        student, teacher, real = ragged(draw, 2, 3, 5)
        _, changed = watch(kd_loss, student, teacher, 2.0, real)
        assert changed == [], "an argument was changed, by its place"


@pytest.mark.group("gradients")
class TestGradients:
    @pytest.mark.parametrize("temperature", TEMPERATURES)
    def test_closed_form(self, draw, temperature):
        """τ · (q − p) / tokens where real, 0 elsewhere; none for the teacher."""
        student, teacher, real = ragged(draw, 3, 4, 6)
        options = {"temperature": temperature, "real": real}
        self._check(student, teacher, **options)

    def test_without_options(self, draw):
        self._check(*logits_of(draw, 2, 3, 7))

    def test_logits_far_apart(self, draw):
        self._check(*logits_of(draw, 2, 3, 7, scale=300.0))

    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_tokens_that_cannot_come(self, draw, temperature):
        student, teacher = impossible(draw)
        self._check(student, teacher, temperature=temperature)
        self._check(pad(student, 3), pad(teacher, 3), temperature=temperature)

    def _check(self, student, teacher, **options):
        others = options.get("temperature", 1.0), options.get("real")
        value, (got, of_teacher) = grad_of(kd_loss, student, teacher, *others)
        assert_loss(value, student, teacher, *others, what="loss")
        _, slope = oracles.kd_loss(student, teacher, *others)
        rounding = oracles.rounding_of(student, teacher, *others) / others[0]
        where = {"what": "gradient of the student", "axes": "text token id"}
        assert_near(got, slope, rounding, **where)
        assert_equal(of_teacher, torch.zeros_like(teacher), what="gradient of the teacher")


@pytest.mark.group("hidden")
class TestHiddenLoss:
    def test_without_a_projection(self, draw):
        student, teacher, real = ragged(draw, 3, 4, 6)
        square = torch.eye(6)
        expected, slope, _ = oracles.hidden_loss(student, teacher, square, real)
        value, (got, of_teacher) = grad_of(hidden_loss, student, teacher, None, real)
        assert_near(value, expected, what="loss")
        assert_near(got, slope, what="gradient of the student", axes="text token channel")
        assert_equal(of_teacher, torch.zeros_like(teacher), what="gradient of the teacher")
        expected = oracles.hidden_loss(student, teacher, square)[0]
        assert_near(hidden_loss(student, teacher), expected, what="loss without a mask")

    @pytest.mark.parametrize("widths", [(3, 7), (6, 4), (5, 5)], ids=str)
    def test_with_a_projection(self, draw, widths):
        narrow, wide = widths
        (student, _, real), (teacher, *_) = ragged(draw, 3, 4, narrow), logits_of(draw, 3, 4, wide)
        arguments = student, teacher, draw.normal(wide, narrow)
        loss, *slopes = oracles.hidden_loss(*arguments, real)
        value, (got, of_teacher, weight) = grad_of(hidden_loss, *arguments, real)
        assert_near(value, loss, what="loss")
        assert_near(got, slopes[0], what="gradient of the student", axes="text token channel")
        assert_near(weight, slopes[1], what="gradient of the projection", axes="row column")
        assert_equal(of_teacher, torch.zeros_like(teacher), what="gradient of the teacher")

    def test_what_makes_no_sense(self, draw):
        student, teacher = logits_of(draw, 2, 3, 5)
        for other in (draw.normal(2, 3, 4), draw.normal(2, 3, 1)):
            what = f"5 channels and {other.shape[-1]}, no projection"
            assert_value_error(what, hidden_loss, student, other)
        none = torch.zeros(2, 3).bool()
        assert_value_error("no real token", hidden_loss, student, teacher, None, none)

    def test_arguments_are_not_changed(self, draw):
        student, teacher, real = ragged(draw, 2, 3, 5)
        _, changed = watch(hidden_loss, student, teacher, draw.normal(5, 5), real)
        assert changed == [], "an argument was changed, by its place"


TEACHER = LlamaConfig(
    vocab_size=13, num_layers=2, d_model=12, num_heads=4, num_kv_heads=2, head_dim=4, d_ff=10
)
SMALLER = LlamaConfig(
    vocab_size=13, num_layers=1, d_model=8, num_heads=2, num_kv_heads=1, head_dim=4, d_ff=9
)
AS_WIDE = LlamaConfig(
    vocab_size=13, num_layers=1, d_model=12, num_heads=2, num_kv_heads=1, head_dim=4, d_ff=9
)
STEPS = 4
RATE = 0.02


@pytest.mark.group("loop")
class TestDistil:
    @pytest.mark.parametrize(
        "config, options",
        [
            (SMALLER, {}),
            (SMALLER, {"temperature": 3.0}),
            (AS_WIDE, {"temperature": 0.5, "hidden_weight": 2.5}),
        ],
        ids=["plain", "temperature", "hidden"],
    )
    @pytest.mark.parametrize("frozen", [False, True], ids=["trainable", "frozen"])
    def test_equals_a_training_with_the_given_loop(self, draw, config, options, frozen):
        """In float64; the parameters of what was loaded, or pruned, require no gradients."""
        seeds, batches = (draw.seed(), draw.seed()), batches_of(draw)
        student, teacher = made(Llama, config, seeds[0]), made(Llama, TEACHER, seeds[1])
        for model in (student, teacher) if frozen else ():
            model.requires_grad_(False)
        told, changed, in_teacher = [], [], []

        def as_the_teacher_runs(module, given):
            in_teacher.append(their_torch.is_grad_enabled())

        teacher.layers[0].register_forward_pre_hook(as_the_teacher_runs)

        def on_step(step, loss):
            told.append((step, loss))
            changed.append(weights(student)["norm.weight"])

        losses = distil(
            student, teacher, given(batches), STEPS, learning_rate=RATE, on_step=on_step, **options
        )
        oracle = made(GradersLlama, config, seeds[0])
        untouched = made(GradersLlama, TEACHER, seeds[1])
        expected = oracles.trained(oracle, untouched, batches, RATE, **options)

        assert type(losses) is list and all(type(loss) is float for loss in losses), repr(losses)
        assert_near(torch.tensor(losses), torch.tensor(expected), what="losses", axes="step")
        for name, weight in weights(oracle).items():
            # The updates, not the weights, are what may differ by rounding.
            assert_learnt(weights(student)[name], weight, name)
        for name, weight in weights(untouched).items():
            assert_equal(weights(teacher)[name], weight, what=f"the teacher's {name}")
        assert True not in in_teacher, "the teacher runs where gradients are enabled: no no_grad"
        assert_equal(told, list(enumerate(losses)), what="calls of on_step")
        assert_learnt(changed[-1], weights(oracle)["norm.weight"], "norm.weight at the last call")
        assert not torch.equal(changed[0], torch.ones(config.d_model)), "on_step before the update"

    def test_one_step_that_no_one_watches(self, draw):
        """Its loss is the closed form, of the models as they were."""
        student, teacher = made(Llama, SMALLER, draw.seed()), made(Llama, TEACHER, draw.seed())
        tokens, real = batches_of(draw)[0]
        logits = student(tokens).detach(), teacher(tokens).detach()
        (loss,) = distil(
            student, teacher, given([(tokens, real)]), 1, learning_rate=RATE, temperature=2.0
        )
        assert_loss(torch.tensor(loss), *logits, 2.0, real, what="loss of the one step")

    def test_hidden_states_of_other_widths(self, draw):
        student, teacher = made(Llama, SMALLER, 1), made(Llama, TEACHER, 2)
        options = {"learning_rate": RATE, "hidden_weight": 0.5}
        train = partial(distil, student, teacher, given(batches_of(draw)), STEPS, **options)
        assert_value_error("8 channels and 12, hidden_weight 0.5", train)


# ---- inputs ------------------------------------------------------------------------------------


def impossible(draw):
    """Logits of a teacher who holds some ids impossible, other ones at each token."""
    student, teacher = logits_of(draw, 2, 3, 7)
    gone = draw.uniform(2, 3, 7) < 0.4
    gone[:, :, 2] = False
    gone[0, 0, 3] = True
    return student, teacher.masked_fill(gone, -INFINITE)


def pad(logits, count):
    """The same with more ids, which no one holds possible."""
    return torch.nn.functional.pad(logits, (0, count), value=-INFINITE)


def made(model, config, seed):
    return model(config, seed).double()


def batches_of(draw):
    """A batch for every step, each of another length."""
    shapes = [(3, 5 + step) for step in range(STEPS)]
    return [(draw.integers(0, 11, *shape), some(draw, *shape)) for shape in shapes]


def given(batches):
    """As a function of the step."""

    def batch(step):
        assert type(step) is int and 0 <= step < STEPS, f"asked for the batch of step {step!r}"
        return batches[step]

    return batch


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def assert_learnt(got, expected, name):
    """Within a thousandth of what `STEPS` updates can do."""
    assert_close(got, expected, naive=(expected + RATE / 4000).float(), what=name)
