"""The process boundary: what crosses, what does not, and what a child's misbehaviour costs."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from assignment.provided.models import LlamaConfig
from assignment.provided.speculative import Draft
from tests.grading.alarm import alarm
from tests.grading.boundary import (
    call_with_parameters,
    grad_of,
    kept_bytes,
    observe,
    parameter_grads,
    watch,
)
from tests.grading.errors import GraderError, OutOfTime, ServerDied, SubmissionError
from tests.grading.transport import proxy
from tests.grading.transport.forkserver import ForkServer
from tests.grading.transport.proxy import Name
from tests.grading.transport.wire import Blob, Codec, WireError

SUBMISSION = """
import copy, os, signal, sys, time
import torch
from assignment.provided.models import LlamaConfig
from assignment.provided.speculative import Draft

TOKEN = os.urandom(8).hex()  # of one child

def echo(*args, **kwargs):
    return list(args) if not kwargs else (list(args), kwargs)

def widen(config: LlamaConfig):
    import dataclasses
    return dataclasses.replace(config, d_model=2 * config.d_model)

class Counter:
    step = 2
    def __init__(self, start): self.count = start
    def advance(self): self.count += self.step; return self.count
    def __len__(self): return self.count
    def __getitem__(self, i): return i * self.count
    def __iter__(self): return iter(range(self.count))

def twice(function, x): return function(function(x))
def apply_to(counter, function): return function(counter)
def give_back(function): return function
def make_adder(n): return lambda x: x + n
def copied(value): return copy.deepcopy(value)
def make_linear(trained): return torch.nn.Linear(2, 1, bias=False).requires_grad_(trained)
def total(counter): return counter.count

def fail(kind):
    text = "what went wrong"
    raise {"value": ValueError(text), "mine": Mine(text), "exit": SystemExit(text),
           "unicode": UnicodeDecodeError("utf-8", b"", 0, 1, text)}[kind]
class Mine(Exception): pass

def flood(f): return f(torch.zeros(2**21, dtype=torch.int64))
class Deadly:
    def dim(self): os._exit(5)
def hand_over_death(f): return f(Deadly())
def fails_often(f):
    for _ in range(1000):
        try: f()
        except Exception: pass
def without_buffer():
    import fcntl
    os.write(1, b"x" * 100)
    fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)
class Endless:
    def __len__(self): return 2**40
def forge_the_cost():
    from assignment.provided.lab.counter import CostCounter
    from assignment.provided.lab.cost import Cost
    CostCounter.cost = Cost(flops=torch.ones(2), bytes_read=0, bytes_written=0)
def stay():
    class Stays(list):
        def clear(self): time.sleep(60)
    import gc
    from tests.grading.transport.agent import Agent
    for agent in gc.get_objects():
        if type(agent) is Agent: agent._objects = Stays()
def leave(status): os._exit(status)
def die(): __import__("ctypes").string_at(0)
def sleep(): time.sleep(60)
def shout(): print("to stdout"); print("to stderr", file=sys.stderr)
def leave_running(what):
    import threading
    act = (lambda: os._exit(0)) if what == "dies" else (lambda: misbehave("junk" * 10))
    threading.Timer(0.2, act).start()
class Dark(Exception):
    def __str__(self): return 1 // 0
def fail_darkly(): raise Dark()
def unfinished(): raise NotImplementedError
def scale(x, factor): x.mul_(factor); return x.sum()
def lengthen(prompts): prompts[1].append(4); return prompts[1][-1]
def redraft(draft): draft.tokens.zero_(); return draft.num_draft
def square(x): return (x * x).sum(-1)
def observed_callback(f, x): return f(x) + 1
def misbehave(what):
    for fd in range(3, 30):
        try: os.write(fd, what.encode('latin-1'))
        except OSError: pass
    time.sleep(5)
class Sub(torch.Tensor): pass
def subclass(): return torch.ones(2).as_subclass(Sub)
def swallow(f):
    try: f()
    except Exception as error: return type(error).__name__
def double_checked(x: "Float[torch.Tensor, 'B T']"): return x
"""


@pytest.fixture(scope="module")
def server():
    server = ForkServer()
    tree = server.tree
    (tree / "toy").mkdir()
    (tree / "toy" / "things.py").write_text(SUBMISSION)
    (tree / "toy" / "broken.py").write_text("x = 1\ndef f(:\n")
    (tree / "toy" / "raises.py").write_text("import os\n\nraise RuntimeError('at import')\n")
    yield server
    server.close()


@pytest.fixture(autouse=True)
def child(server):
    proxy.begin(server, time_limit=20)
    yield
    proxy.end()


def thing(name: str) -> Name:
    return Name("toy.things", name)


VALUES = [
    None, True, 0, -(2**70), 1.5, math.inf, "", "naïve \u2028 \ud800", [], [1, [2]], (), (1, (2,)),
    {}, {"a": 1, 2: [3]}, {(1, 2): "tuple key"}, set(), {1, (2, "a")}, torch.float16,
    {"$": "handle", "id": 0},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_cross_unchanged(value):
    got = thing("echo")(value)[0]
    assert got == value and type(got) is type(value)


def test_nan_crosses():
    assert math.isnan(thing("echo")(math.nan)[0])


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64,
     torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 5)], ids=str)
def test_tensors_cross_to_the_bit(dtype, shape):
    sent = (torch.randn(shape) * 3).to(dtype)
    got = thing("echo")(sent)[0]
    assert type(got) is torch.Tensor and got.dtype == dtype and got.shape == sent.shape
    assert torch.equal(
        got.view(torch.uint8) if shape else got, sent.view(torch.uint8) if shape else sent
    )


@pytest.mark.parametrize("shape", [(1,), (1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool], ids=str)
def test_one_element_crosses_whatever_its_stride(dtype, shape):
    """torch calls it contiguous, and still refuses to view it as bytes."""
    sent = torch.as_strided(torch.arange(3, 11).to(dtype), shape, (8,) * len(shape), 1)
    got, changed = watch(thing("echo"), sent)
    assert torch.equal(got[0], sent) and changed == []


def test_a_view_crosses_as_what_it_shows_and_each_tensor_has_its_own_memory():
    base = torch.arange(12).reshape(3, 4)
    first, second = thing("echo")(base.T[1:3], base[:, 1])
    assert torch.equal(first, base.T[1:3]) and torch.equal(second, base[:, 1])
    first.zero_()
    assert torch.equal(second, base[:, 1])


def test_keyword_arguments_and_dataclasses_of_provided_cross():
    assert thing("echo")(1, key=[2]) == ([1], {"key": [2]})
    config = LlamaConfig(
        vocab_size=8, num_layers=1, d_model=4, num_heads=2, num_kv_heads=1, head_dim=2, d_ff=8
    )
    assert thing("widen")(config) == dataclasses.replace(config, d_model=8)


def test_handles_answer_attributes_methods_items_length_iteration_and_are_arguments():
    counter = thing("Counter")(3)
    assert counter.count == 3 and counter.advance() == 5
    assert len(counter) == 5 and counter[4] == 20 and list(counter) == [0, 1, 2, 3, 4]
    assert thing("total")(counter) == 5
    assert thing("make_adder")(10)(5) == 15
    assert thing("Counter").step == 2
    assert thing("echo")(counter)[0].advance() == 7  # still the same object


def test_a_handle_of_another_test_and_private_attributes_are_refused(server):
    counter = thing("Counter")(3)
    with pytest.raises(AttributeError):
        counter._secret  # noqa: B018
    proxy.end()
    proxy.begin(server, time_limit=20)
    with pytest.raises(GraderError, match="another test"):
        thing("total")(counter)


def test_functions_of_the_test_are_called_back_with_values_and_handles():
    calls = []

    def add(x):
        calls.append(x)
        return x + 1

    assert thing("twice")(add, torch.tensor([1, 2])).tolist() == [3, 4]
    assert len(calls) == 2
    assert thing("apply_to")(thing("Counter")(7), lambda counter: counter.advance()) == 9
    assert thing("give_back")(add) is add


def test_names_are_arguments_too():
    assert thing("twice")(thing("make_adder")(4), 1) == 9
    assert thing("apply_to")(thing("Counter")(3), thing("total")) == 3


def test_exceptions_keep_their_builtin_type_and_show_where_they_came_from():
    with pytest.raises(ValueError, match="what went wrong") as caught:
        thing("fail")("value")
    assert "things.py" in caught.value.__notes__[0]
    for kind, text in [
        ("mine", "Mine: what went wrong"),
        ("exit", "SystemExit"),
        ("unicode", "Unicode"),
    ]:
        with pytest.raises(SubmissionError, match=text):
            thing("fail")(kind)
    with pytest.raises(NotImplementedError):
        thing("unfinished")()


def test_an_exception_that_cannot_be_shown_is_an_ordinary_failure():
    with pytest.raises(SubmissionError, match="str\\(\\) raised ZeroDivisionError"):
        thing("fail_darkly")()
    assert thing("echo")(1) == [1]


def test_an_exception_of_a_callback_comes_back_as_itself():
    class OfTheTest(Exception):
        pass

    def refuse(*_):
        raise OfTheTest("no")

    with pytest.raises(OfTheTest):
        thing("twice")(refuse, 1)
    assert thing("swallow")(lambda: [][1]) == "IndexError"


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [
        ("toy.absent", "f", "toy.absent: no file .*absent.py"),
        ("toy.things", "gone", "toy.things: .*things.py has no `gone`"),
        ("toy.broken", "f", "toy.broken: .*broken.py, line 2: SyntaxError"),
        ("toy.raises", "f", "toy.raises: .*raises.py, line 3: RuntimeError: at import"),
    ],
)
def test_what_is_missing_or_broken_is_one_line(module, name, line):
    with pytest.raises(SubmissionError, match=line) as caught:
        Name(module, name)(1)
    assert "\n" not in str(caught.value)


def test_a_missing_tree_is_one_line():
    server = ForkServer()
    server.tree.rmdir()
    proxy.end()
    proxy.begin(server, time_limit=20)
    with pytest.raises(SubmissionError, match="toy.things: no folder .*tree"):
        thing("echo")(1)
    proxy.end()
    server.close()


@pytest.mark.parametrize(
    ("how", "args", "why"),
    [("leave", (0,), "status 0"), ("leave", (3,), "status 3"), ("die", (), "signal 11")],
)
def test_a_dead_child_fails_its_own_test_only(server, how, args, why):
    with pytest.raises(SubmissionError, match=f"ended in the middle of the test .*{why}"):
        thing(how)(*args)
    with pytest.raises(SubmissionError, match="ended"):
        thing("echo")(1)  # no second life within the test
    proxy.end()
    proxy.begin(server, time_limit=20)
    assert thing("echo")(1) == [1]


def processes_of(server) -> set[int]:
    """All of one zygote: forks have its command line, which names the server's folder."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(server.folder).encode() in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
    return found


def test_a_hang_is_cut_and_its_process_is_gone(server):
    server.how_it_ended(server.fork())  # carried out after the end of all others
    before = processes_of(server)
    proxy.end()
    proxy.begin(server, time_limit=5)
    started = time.monotonic()
    with pytest.raises(SubmissionError, match="did not finish in time"):
        thing("sleep")()
    assert len(processes_of(server)) == len(before) + 1
    proxy.end()
    assert time.monotonic() - started < 30  # and not the 60 s that it sleeps
    server.how_it_ended(server.fork())
    assert processes_of(server) == before


def test_a_child_that_does_not_read_is_cut_too(server):
    """Its end of the socket fills up: the grader must not wait for room for ever."""
    (server.tree / "toy" / "loops.py").write_text("while True:\n    pass\n")
    proxy.end()
    proxy.begin(server, 5, "toy.loops")
    with pytest.raises(SubmissionError, match="did not finish in time"):
        Name("toy.loops", "f")(torch.zeros(4_000_000))


@pytest.mark.parametrize(
    "what",
    [
        b'{"passed": true}\n' * 10,
        b"\xff" * 40,
        b"\x02\x00\x00\x00" + bytes(8) + b"{}",
        b"\x04\x00\x00\x00" + bytes(8) + b"nope",
    ],
)
def test_forged_frames_never_pass(what):
    with pytest.raises(SubmissionError):
        thing("misbehave")(what.decode("latin-1"))


@pytest.mark.parametrize(
    "reply",
    [
        {
            "error": {
                "type": "eval",
                "builtin": True,
                "message": "1/0",
                "plain": False,
                "trace": "",
                "of_callback": None,
            }
        },
        {
            "error": {
                "type": "SystemExit",
                "builtin": True,
                "message": "0",
                "plain": False,
                "trace": "",
                "of_callback": None,
            }
        },
    ],
)
def test_a_lying_error_is_still_an_ordinary_failure(server, reply):
    session = proxy.Session(server, 1)
    assert type(session._exception(reply["error"])) is SubmissionError


@pytest.mark.parametrize(
    "message",
    [
        {"$": "tensor", "dtype": "float32", "shape": [4], "start": 0},
        {"$": "tensor", "dtype": "float32", "shape": [-1], "start": 0},
        {"$": "tensor", "dtype": "float32", "shape": [1], "start": -4},
        {"$": "dataclass", "of": ["subprocess", "Popen"], "fields": [["args", "true"]]},
        {"$": "dataclass", "of": ["assignment.provided.models", "Llama"], "fields": []},
        {"$": "unheard of"},
    ],
)  # fmt: skip
def test_a_senseless_value_is_refused(message):
    with pytest.raises(WireError):
        Codec().decode(message, Blob(bytes(8)))


def test_only_plain_tensors_cross_as_tensors():
    assert not isinstance(thing("subclass")(), torch.Tensor)  # a handle: no test takes it for one


def test_what_the_submission_prints_is_kept():
    thing("shout")()
    assert "to stdout" in proxy.printed() or "to stderr" in proxy.printed()


def test_observe_counts():
    seen = observe(thing("square"), torch.ones(4, 10))
    assert torch.equal(seen.value, torch.full((4,), 10.0)) and seen.cost.bytes_read >= 160


def test_watch_sees_changed_arguments_and_leaves_ours_alone():
    mine, prompts = torch.ones(10), [[1], [2, 3]]
    assert watch(thing("scale"), mine, factor=3.0) == (30, ["0"])
    assert watch(thing("lengthen"), prompts=prompts) == (4, ["prompts"])
    assert torch.equal(mine, torch.ones(10)) and prompts == [[1], [2, 3]]
    assert watch(thing("echo"), mine, prompts, math.nan)[1] == []


def test_watch_looks_into_what_is_given_as_a_dataclass():
    draft = Draft(torch.ones(1, 2).long(), torch.tensor([2]))
    assert watch(thing("redraft"), draft) == (torch.tensor([2]), ["0"])
    assert draft.tokens.tolist() == [[1, 1]]
    assert watch(thing("echo"), draft)[1] == []


def test_callbacks_are_not_counted():
    big = torch.ones(1000)
    alone = observe(thing("echo"), big).cost
    seen = observe(thing("twice"), lambda x: (x * 2).tolist() and x, big)
    assert seen.cost == alone


def test_gradients_cross():
    x = torch.tensor([1.0, 2.0, 3.0])
    value, (grad,) = grad_of(thing("square"), x)
    assert value == 14 and torch.equal(grad, 2 * x)


def test_gradients_of_parameters_cross():
    got = parameter_grads(thing("make_linear")(True), torch.tensor([1.0, 2.0]))
    assert got.keys() == {"weight"} and torch.equal(got["weight"], torch.tensor([[1.0, 2.0]]))
    with pytest.raises(SubmissionError, match="does not depend on any parameter"):
        parameter_grads(thing("make_linear")(False), torch.ones(2))


def test_kept_bytes_cross():
    assert kept_bytes(thing("make_linear")(True)) == 8
    assert kept_bytes(call_with_parameters(thing("make_adder"), torch.ones(3))) == 12


def test_a_test_s_function_is_copied_as_functions_are():
    def mine():
        pass

    assert thing("copied")([mine, 3]) == [mine, 3]


def test_the_same_child_serves_a_test_and_a_fresh_one_the_next(server):
    first = thing("TOKEN").upper()
    assert thing("TOKEN").upper() == first
    proxy.end()
    proxy.begin(server, time_limit=20)
    assert thing("TOKEN").upper() != first


def test_use_outside_a_test_is_the_graders_fault():
    proxy.end()
    with pytest.raises(GraderError, match="inside a test"):
        thing("echo")(1)


def test_a_fork_is_cheap(server):
    """Not a threshold on a clock: a fork must cost far less than starting Python with torch."""
    times = []
    for _ in range(5):
        started = time.monotonic()
        server.how_it_ended(server.fork())
        times.append(time.monotonic() - started)
    started = time.monotonic()
    fresh = ForkServer()
    fresh.how_it_ended(fresh.fork())
    start_up = time.monotonic() - started
    fresh.close()
    assert sorted(times)[2] < start_up / 5


def test_the_next_tests_child_is_of_the_same_module_or_dropped(server):
    for module in ("toy.things", "toy.things", "toy.raises", "toy.things"):
        proxy.end()
        proxy.begin(server, 20, module)
        assert thing("echo")(1) == [1]


def test_a_module_that_kills_the_child_when_it_loads_costs_its_own_tests_only(server):
    (server.tree / "toy" / "deadly.py").write_text("import os\nos._exit(7)\n")
    for _ in range(2):
        proxy.end()
        proxy.begin(server, 20, "toy.deadly")
        with pytest.raises(SubmissionError, match="status 7"):
            Name("toy.deadly", "f")()
        proxy.end()
        proxy.begin(server, 20, "toy.things")
        assert thing("echo")(1) == [1]


def test_a_dead_zygote_is_the_graders_fault_and_the_next_test_has_another():
    server = ForkServer()
    (server.tree / "toy").mkdir()
    (server.tree / "toy" / "things.py").write_text(SUBMISSION)
    proxy.end()
    proxy.begin(server, 20, "toy.things")
    assert thing("echo")(1) == [1]
    kill_all(server)
    with pytest.raises(ServerDied, match="zygote died"):
        thing("echo")(1)
    proxy.end()
    proxy.begin(server, 20, "toy.things")
    assert thing("echo")(1) == [1]
    proxy.end()
    server.close()
    assert not processes_of(server) and not server.folder.exists()


def test_a_zygote_that_keeps_dying_is_given_up():
    server = ForkServer()
    proxy.end()
    for _ in range(3):
        proxy.begin(server, 20)
        with pytest.raises(SubmissionError, match="no file"):
            thing("echo")(1)
        kill_all(server)
        proxy.end()
    proxy.begin(server, 20)
    with pytest.raises(ServerDied, match="3 zygotes have died"):
        thing("echo")(1)
    proxy.end()
    server.close()


def kill_all(server) -> None:
    for pid in processes_of(server):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    server._process.wait()


def token_of_a_test(server, *, keep):
    proxy.end()
    proxy.begin(server, 20, "toy.things")
    token = thing("TOKEN").upper()
    proxy.end(keep)
    return token


def test_a_child_that_is_kept_serves_the_next_test_and_no_other_does(server):
    first = token_of_a_test(server, keep=True)
    assert token_of_a_test(server, keep=True) == first
    assert token_of_a_test(server, keep=False) == first
    assert token_of_a_test(server, keep=True) != first


def test_a_child_that_waits_for_an_answer_is_not_kept(server):
    def interrupt(x):
        raise OutOfTime  # no Exception: nothing is sent back

    first = token_of_a_test(server, keep=True)
    proxy.begin(server, 20, "toy.things")
    with pytest.raises(OutOfTime):
        thing("twice")(interrupt, 1)
    proxy.end(keep=True)
    assert token_of_a_test(server, keep=True) != first


def test_a_child_whose_call_and_callback_failed_is_kept(server):
    first = token_of_a_test(server, keep=True)
    proxy.begin(server, 20, "toy.things")
    with pytest.raises(NotImplementedError):
        thing("apply_to")(1, lambda _: thing("unfinished")())
    proxy.end(keep=True)
    assert token_of_a_test(server, keep=True) == first


def test_nothing_of_the_graders_environment_reaches_a_child(monkeypatch):
    monkeypatch.setenv("GRADING_SECRET", "hush")
    monkeypatch.setenv("AWS_TOKEN", "hush")
    server = ForkServer()
    (server.tree / "toy").mkdir()
    (server.tree / "toy" / "spy.py").write_text("import os\ndef f(): return dict(os.environ)\n")
    proxy.end()
    proxy.begin(server, 20)
    seen = Name("toy.spy", "f")()
    proxy.end()
    server.close()
    assert "PATH" in seen and "hush" not in seen.values()


def test_a_shared_child_has_no_handles_of_the_last_test_and_prints_for_its_own(server):
    proxy.end()
    proxy.begin(server, 20, "toy.things")
    old = thing("Counter")(3)
    thing("shout")()
    proxy.end(keep=True)
    proxy.begin(server, 20, "toy.things")
    assert thing("echo")(1) == [1] and proxy.printed() == ""
    with pytest.raises(GraderError, match="another test"):
        thing("total")(old)


@pytest.mark.parametrize("left", ["dies", "writes"])
def test_what_a_passed_test_leaves_running_does_not_cost_the_next_one(server, left):
    proxy.end()
    proxy.begin(server, 20, "toy.things")
    assert thing("leave_running")(left) is None
    proxy.end(keep=True)
    time.sleep(0.5)
    proxy.begin(server, 20, "toy.things")
    assert thing("echo")(1) == [1]


def test_another_modules_test_gets_another_child(server):
    (server.tree / "toy" / "more.py").write_text("import os\nTOKEN = os.urandom(8).hex()\n")
    first = token_of_a_test(server, keep=True)
    proxy.begin(server, 20, "toy.more")
    assert Name("toy.more", "TOKEN").upper() != first


def test_tensors_of_a_message_share_no_bytes():
    one = {"$": "tensor", "dtype": "uint8", "shape": [6], "start": 0}
    Codec().decode([one], Blob(bytes(8)))
    with pytest.raises(WireError, match="another's"):
        Codec().decode([one, one], Blob(bytes(8)))


@pytest.mark.parametrize("shape", [[1] * 65, [2**63], [10**4000] * 3, [0, 2**70]], ids=len)
def test_no_shape_is_too_much_work_for_the_grader(shape):
    with pytest.raises(WireError, match="no sense"):
        message = {"$": "tensor", "dtype": "uint8", "shape": shape, "start": 0}
        Codec().decode(message, Blob(bytes(8)))


def test_a_bool_is_true_or_false_whatever_its_byte():
    message = {"$": "tensor", "dtype": "bool", "shape": [3], "start": 0}
    got = Codec().decode(message, Blob(b"\x00\x01\x02"))
    assert torch.equal(got, torch.tensor([False, True, True])) and got.sum() == 2


def test_a_handle_where_a_tensor_should_be_is_the_submissions_fault():
    with pytest.raises(SubmissionError, match="expected a tensor or a list, got <Counter"):
        thing("Counter")(3)[:, 0:2]


def test_a_callback_gets_only_what_the_grader_can_compute_with():
    with pytest.raises(SubmissionError, match="callback of .* bytes is too large"):
        thing("flood")(lambda x: x.sum())


def test_the_grader_does_not_work_for_ever_for_a_submission():
    with pytest.raises(OutOfTime), alarm(0.2):
        thing("twice")(lambda x: [x for _ in range(10**12)], 1)
    with alarm(0.5):
        pass
    time.sleep(0.6)  # it does not ring later


def test_a_child_that_dies_under_a_callback_is_one_failure_and_the_zygote_lives(server):
    def ask(handle):
        with contextlib.suppress(SubmissionError):
            return handle.dim()

    with pytest.raises(SubmissionError, match="ended in the middle of the test .*status 5"):
        thing("hand_over_death")(ask)
    proxy.end()
    proxy.begin(server, 20, "toy.things")
    assert thing("echo")(1) == [1] and server._starts == 1


def test_a_tests_function_fails_a_limited_number_of_times():
    with pytest.raises(SubmissionError, match="too often"):
        thing("fails_often")(lambda: [][1])


def test_what_a_child_does_to_its_output_does_not_hinder_the_grader():
    thing("without_buffer")()
    assert proxy.printed() == "x" * 100


def test_a_length_is_one_that_a_list_can_have():
    with pytest.raises(SubmissionError, match="impossible length"):
        len(thing("Endless")())


def test_a_cost_that_is_no_cost_is_the_submissions_fault():
    thing("forge_the_cost")()
    with pytest.raises(SubmissionError, match="cost counter .* answers nonsense"):
        observe(thing("square"), torch.ones(4, 10))


def test_a_child_that_cannot_forget_is_not_used_again(server, monkeypatch):
    monkeypatch.setattr(proxy, "RESET", 0.5)
    proxy.end()
    (server.tree / "toy" / "stays.py").write_text(SUBMISSION)
    tokens = set()
    for _ in range(3):
        proxy.begin(server, 20, "toy.stays")
        tokens.add(Name("toy.stays", "TOKEN").upper())
        Name("toy.stays", "stay")()
        proxy.end(keep=True)
    assert len(tokens) == 3 and server._idle is None


def test_keys_that_collide_are_few():
    keys = [[n * (2**61 - 1), 0] for n in range(100_000)]
    with pytest.raises(WireError, match="100,000 keys"):
        Codec().decode({"$": "dict", "items": keys}, Blob(b""))
