"""accounting.latency: what a pass multiplies and reads, and how long a chip takes for it."""

from __future__ import annotations

import pytest

from assignment.provided.lab import CHIPS, Chip, Cost
from assignment.provided.models import AttentionLayer, LlamaConfig
from submission.accounting.latency import (
    decode_cost,
    decode_latency,
    decode_throughput,
    prefill_cost,
    replicated,
    seconds,
    time_to_first_token,
)
from tests.accounting import oracles_latency as oracles
from tests.accounting.oracles_latency import assert_cost, draw_chip, windowed
from tests.accounting.oracles_memory import (
    KINDS,
    assert_number,
    draw_config,
    llama_2_13b,
    one,
)
from tests.grading.closeness import assert_equal
from tests.grading.shapes import around

OF_EACH_KIND = pytest.mark.parametrize("kind", KINDS)
H100 = CHIPS["H100"]
FORMATS = [(2, 2), (1, 2), (2, 1), (0.5, 1), (133 / 256, 0.5), (2, 133 / 256)]


def check_decode(config, batch, length, num_new=1, sizes=(2, 2)):
    got = decode_cost(config, batch, length, num_new, *sizes)
    what = f"decode_cost(batch {batch}, length {length}, num_new {num_new}, bytes {sizes})"
    expected = oracles.decode(config, batch, length, num_new)
    assert_cost(got, expected, sizes, what, config)


@pytest.mark.group("decode")
class TestDecode:
    @pytest.mark.parametrize(
        "kv_heads, batch, read, latency, throughput",
        [
            (40, 1, 26_869_760_000, 8.020824, 124.675),
            (40, 64, 79_717_990_400, 23.796415, 2689.481),
            (40, 256, 240_779_264_000, 71.874407, 3561.769),
            (8, 64, 33_412_874_240, 9.973992, 6416.688),
            (8, 256, 65_625_128_960, 19.589591, 13068.165),
            (1, 64, 23_283_630_080, 6.950337, 9208.186),
            (1, 256, 27_310_161_920, 8.152287, 31402.231),
        ],
    )
    def test_llama_2_13b_on_an_h100(self, kv_heads, batch, read, latency, throughput):
        config, what = llama_2_13b(kv_heads), f"K = {kv_heads}, {batch} sequences of 1024"
        assert_number(decode_cost(config, batch, 1024).bytes_read, read, f"bytes_read, {what}")
        got = decode_latency(config, H100, batch, 1024)
        assert_number(round(1000 * got, 6), latency, f"milliseconds a token, {what}")
        got = decode_throughput(config, H100, batch, 1024)
        assert_number(round(got, 3), throughput, f"tokens a second, {what}")

    def test_intensity_of_a_whole_step(self):
        for batch, expected in [(1, 0.99), (64, 21.31), (256, 28.22)]:
            cost = decode_cost(llama_2_13b(), batch, 1024)
            got = round(cost.flops / cost.bytes, 2)
            assert_number(got, expected, f"FLOPs a byte, {batch} sequences of 1024")

    @OF_EACH_KIND
    def test_layers_of_one_kind(self, draw, kind):
        for tied in (True, False):
            config = draw_config(draw, KINDS[kind], tie_embeddings=tied)
            check_decode(config, one(draw, 2, 5), one(draw, 10, 30))

    @pytest.mark.parametrize("window", [1, 4, 9])
    def test_around_a_window(self, draw, window):
        config = windowed(draw, window)
        for length in sorted({*around(window), 3 * window} - {0}):
            check_decode(config, 2, length)

    def test_layers_of_all_kinds(self, draw):
        for _ in range(6):
            check_decode(draw_config(draw), one(draw, 1, 6), one(draw, 1, 40))

    def test_formats_of_their_own(self, draw):
        config = draw_config(draw)
        for sizes in FORMATS:
            check_decode(config, 3, 14, sizes=sizes)

    def test_sharing_saves_no_reading(self):
        """Eight full layers of 32,768 tokens, and the same with every second one shared."""
        sizes = (32_000, 8, 4096, 32, 8, 128, 11_008)
        read = []
        for second in (AttentionLayer(), AttentionLayer(reads=0)):
            layers = (AttentionLayer(), second, *[AttentionLayer()] * 6)
            config = LlamaConfig(*sizes, attention=layers)
            batches = [decode_cost(config, batch, 32_768).bytes_read for batch in (1, 2)]
            read.append(batches[1] - batches[0])  # what one sequence more makes the step read
        assert_number(read[0], 8 * 2 * 1024 * 2 * 32_768, "bytes read for one sequence, all own")
        assert_number(read[1], read[0], "bytes read for one sequence, one layer shared")

    def test_the_slower_of_arithmetic_and_traffic(self):
        chip = Chip("a chip", flops_per_second=500.0, bandwidth=20.0, memory=1.0)
        for cost, expected in [
            (Cost(1000, 30, 9), 2.0),
            (Cost(1000, 30, 11), 2.05),
            (Cost(0, 0, 50), 2.5),
            (Cost(1001, 0, 0), 2.002),
        ]:
            assert_number(seconds(cost, chip), expected, f"seconds of {cost} on {chip}")

    def test_latency_and_throughput(self, draw):
        """On chips that are limited by their arithmetic, or by their memory."""
        for _ in range(3):
            config, batch, length = draw_config(draw), one(draw, 2, 6), one(draw, 5, 30)
            expected = oracles.decode(config, batch, length)
            for sizes in FORMATS:
                chip, arguments = draw_chip(draw, expected), (batch, length, *sizes)
                step = expected.seconds(chip, *sizes)
                what = f"(batch {batch}, length {length}, bytes {sizes}) on {chip}"
                got = decode_latency(config, chip, *arguments)
                assert_number(got, step, f"decode_latency{what}", config)
                got = decode_throughput(config, chip, *arguments)
                assert_number(got, batch / step, f"decode_throughput{what}", config)

    def test_what_quantising_gains(self):
        """13B, 64 sequences: half the bytes of half of what is read is not half the time."""
        for sizes, expected in [
            ((1, 2), 1.195),
            ((2, 1), 1.508),
            ((1, 1), 2.000),
            ((0.5, 2), 1.324),
        ]:
            config = llama_2_13b()
            times = [decode_latency(config, H100, 64, 1024, *each) for each in [(2, 2), sizes]]
            assert_number(round(times[0] / times[1], 3), expected, f"times faster at {sizes} bytes")

    def test_what_fewer_kv_heads_gain(self):
        for batch, expected in [(1, 1.18), (64, 2.39), (256, 3.67), (1024, 4.55), (4096, 4.88)]:
            times = [decode_latency(llama_2_13b(k), H100, batch, 1024) for k in (40, 8)]
            what = f"times faster with K = 8 than 40, {batch} sequences"
            assert_number(round(times[0] / times[1], 2), expected, what)

    def test_the_most_that_a_chip_gives(self):
        """The weights are shared by ever more sequences; keys and values alone set the limit."""
        for kv_heads, limit in [(40, 3993.52), (8, 19_967.56)]:
            got = decode_throughput(llama_2_13b(kv_heads), H100, 10**6, 1024)
            what = f"tokens a second with K = {kv_heads} and a million sequences"
            assert 0.9998 * limit < got < limit, f"{what}: expected a bit below {limit}, got {got}"

    def test_refused(self, draw):
        config = draw_config(draw)
        check_decode(config, 1, 1)
        for batch, length in [(0, 5), (-1, 5), (2, 0)]:
            with pytest.raises(ValueError):
                decode_cost(config, batch, length)
        for sizes in [(0, 2), (2, 0), (-1, 2)]:
            with pytest.raises(ValueError):
                decode_cost(config, 2, 5, 1, *sizes)


@pytest.mark.group("verification")
class TestVerification:
    """Several new tokens a sequence, as when drafts are verified: the cache is read once, and the
    arithmetic grows."""

    @OF_EACH_KIND
    def test_layers_of_one_kind(self, draw, kind):
        for num_new in (2, 5, 12):
            check_decode(draw_config(draw, KINDS[kind]), 3, one(draw, 12, 25), num_new)

    @pytest.mark.parametrize("window", [1, 4, 9])
    def test_around_a_window(self, draw, window):
        config = windowed(draw, window)
        for length in sorted({*around(window), *around(window + 4), 3 * window}):
            if length >= 4:
                check_decode(config, 2, length, num_new=4)

    def test_layers_of_all_kinds(self, draw):
        for _ in range(4):
            config, length = draw_config(draw), one(draw, 2, 40)
            for num_new in (one(draw, 2, length), length):
                check_decode(config, one(draw, 1, 6), length, num_new)

    def test_formats_of_their_own(self, draw):
        config = draw_config(draw)
        for sizes in FORMATS:
            check_decode(config, 3, 14, 3, sizes)

    def test_refused(self, draw):
        config = draw_config(draw)
        check_decode(config, 2, 5, num_new=5)
        for num_new in (0, -1, 6):
            with pytest.raises(ValueError):
                decode_cost(config, 2, 5, num_new)


@pytest.mark.group("prefill")
class TestPrefill:
    @pytest.mark.parametrize(
        "length, compute, first_token",
        [(128, 3.29, 7.77), (512, 13.25, 13.25), (1024, 26.71, 26.71), (4096, 112.04, 112.04)],
    )
    def test_llama_2_13b_on_an_h100(self, length, compute, first_token):
        """A short prompt waits for the weights, a long one for the arithmetic."""
        config, what = llama_2_13b(), f"prompt of {length}"
        cost = prefill_cost(config, 1, length)
        assert_number(cost.bytes_read, 26_030_899_200, f"bytes_read, {what}")
        milliseconds = 1000 * cost.flops / H100.flops_per_second
        assert_number(round(milliseconds, 2), compute, f"milliseconds of arithmetic, {what}")
        got = 1000 * time_to_first_token(config, H100, length)
        assert_number(round(got, 2), first_token, f"milliseconds to the first token, {what}")

    @OF_EACH_KIND
    def test_layers_of_one_kind(self, draw, kind):
        for tied in (True, False):
            config = draw_config(draw, KINDS[kind], tie_embeddings=tied)
            self._compare(config, one(draw, 2, 4), one(draw, 10, 20))

    def test_layers_of_all_kinds(self, draw):
        for _ in range(4):
            self._compare(draw_config(draw), one(draw, 1, 4), one(draw, 1, 30))

    @pytest.mark.parametrize("window", [1, 4, 9])
    def test_around_a_window(self, draw, window):
        config = windowed(draw, window)
        for length in sorted({*around(window), 3 * window} - {0}):
            self._compare(config, 2, length)

    def test_formats(self, draw):
        config = draw_config(draw)
        for size in (0.5, 1, 133 / 256):
            self._compare(config, 2, 6, size)

    def test_time_to_first_token(self, draw):
        for _ in range(3):
            config, batch, length = draw_config(draw), one(draw, 2, 4), one(draw, 2, 20)
            expected = oracles.prefill(config, batch, length)
            for size in (0.5, 2):
                chip = draw_chip(draw, expected)
                got = time_to_first_token(config, chip, length, batch, size)
                what = (
                    f"time_to_first_token(length {length}, batch {batch}, {size} bytes) on {chip}"
                )
                assert_number(got, expected.seconds(chip, size), what, config)

    def test_refused(self, draw):
        config = draw_config(draw)
        self._compare(config, 1, 1)
        for batch, length, size in [(0, 5, 2), (2, 0, 2), (2, 5, 0)]:
            with pytest.raises(ValueError):
                prefill_cost(config, batch, length, size)

    def _compare(self, config, batch, length, size=2):
        got = prefill_cost(config, batch, length, size)
        what = f"prefill_cost(batch {batch}, length {length}, {size} bytes)"
        assert_cost(got, oracles.prefill(config, batch, length), (size, 0), what, config)


@pytest.mark.group("replicas")
class TestReplicas:
    def test_llama_2_13b_on_two_h100s(self):
        """64 sequences on each of two chips: twice what one gives, at the latency of one."""
        latency, throughput = replicated(llama_2_13b(), H100, 128, 1024, 2)
        assert_number(round(1000 * latency, 6), 23.796415, "milliseconds a token")
        assert_number(round(throughput, 3), 5378.961, "tokens a second")

    def test_as_even_as_possible(self, draw):
        for batch, loads in [
            (12, [4, 4, 4]),
            (13, [5, 4, 4]),
            (14, [5, 5, 4]),
            (7, [7]),
            (9, [3, 2, 2, 2]),
            (3, [1, 1, 1, 0, 0]),
            (1, [1, 0]),
        ]:
            self._compare(draw, batch, loads)

    def test_formats_of_their_own(self, draw):
        for sizes in FORMATS:
            self._compare(draw, 8, [3, 3, 2], sizes)

    def test_refused(self, draw):
        self._compare(draw, 2, [1, 1])
        for batch, replicas in [(0, 2), (3, 0)]:
            with pytest.raises(ValueError):
                replicated(llama_2_13b(), H100, batch, 1024, replicas)

    def _compare(self, draw, batch, loads, sizes=(2, 2)):
        config, length = draw_config(draw), one(draw, 2, 30)
        chip = draw_chip(draw, oracles.decode(config, loads[0], length))
        got = replicated(config, chip, batch, length, len(loads), *sizes)
        steps = {n: oracles.decode(config, n, length).seconds(chip, *sizes) for n in {*loads} - {0}}
        what = f"{batch} sequences of {length} on {len(loads)} of {chip}, bytes {sizes}"
        assert_equal(len(got), 2, what=f"results for {what}")
        assert_number(got[0], steps[loads[0]], f"latency of {what}", config)
        total = sum(n / steps[n] for n in loads if n)
        assert_number(got[1], total, f"throughput of {what}", config)
