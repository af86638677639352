"""accounting.memory: every weight once, every sequence's keys and values by its own length."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assignment.provided.lab import CHIPS, Chip
from assignment.provided.models import AttentionLayer, Llama, LlamaConfig
from submission.accounting.memory import (
    kv_bytes,
    kv_bytes_per_token,
    largest_batch,
    memory_bytes,
    parameters,
    weight_bytes,
)
from tests.accounting import oracles_memory as oracles
from tests.accounting.oracles_memory import (
    FORMATS,
    KINDS,
    assert_number,
    draw_config,
    llama_2_13b,
    one,
)
from tests.grading.boundary import watch
from tests.grading.closeness import assert_equal
from tests.grading.shapes import around

OF_EACH_KIND = pytest.mark.parametrize("kind", KINDS)
H100 = CHIPS["H100"]


@pytest.mark.group("parameters")
class TestParameters:
    def test_llama_2_13b(self):
        assert_number(parameters(llama_2_13b()), 13_015_449_600, "parameters")
        assert_number(parameters(llama_2_13b(8)), 11_337_728_000, "parameters with 8 KV heads")

    @OF_EACH_KIND
    def test_layers_of_one_kind(self, draw, kind):
        for tied in (True, False):
            self._compare(draw_config(draw, KINDS[kind], tie_embeddings=tied))

    def test_layers_of_all_kinds(self, draw):
        for _ in range(6):
            self._compare(draw_config(draw))

    def test_no_layers_named_means_full(self, draw):
        config = draw_config(draw, [], num_layers=3)
        self._compare(config)
        self._compare(replace(config, num_kv_heads=config.num_heads))

    def test_a_tied_head_counts_once(self):
        assert_number(parameters(llama_2_13b(tied=True)), 12_851_609_600, "parameters, tied")

    def test_a_real_model(self, draw):
        """The entries of the matrices of the given Llama."""
        for tied in (True, False):
            config = draw_config(draw, [], num_layers=2, tie_embeddings=tied)
            weights = [w for w in Llama(config, seed=None).parameters() if w.dim() == 2]
            expected = sum(weight.numel() for weight in weights)
            assert_number(parameters(config), expected, "parameters", config)

    def test_bytes_of_the_weights(self, draw):
        config = draw_config(draw)
        expected = oracles.parameters(config)
        assert_number(weight_bytes(config), 2 * expected, "weight_bytes", config)
        for size in FORMATS:
            what = f"weight_bytes at {size} bytes a number"
            assert_number(weight_bytes(config, size), expected * size, what, config)

    def _compare(self, config):
        assert_number(parameters(config), oracles.parameters(config), "parameters", config)


@pytest.mark.group("cache")
class TestCache:
    def test_llama_2_13b(self):
        for kv_heads, per_token in [(40, 819_200), (8, 163_840), (1, 20_480)]:
            config, what = llama_2_13b(kv_heads), f"with {kv_heads} KV heads"
            assert_number(kv_bytes_per_token(config), per_token, f"bytes per token {what}")
            assert_number(kv_bytes(config, [1024]), 1024 * per_token, f"bytes of 1024 {what}")

    def test_deepseek_v2(self):
        """576 numbers a token and layer, whatever the number of heads: arXiv:2405.04434."""
        layers = (AttentionLayer(latent_dim=512, rope_dim=64),) * 60
        config = LlamaConfig(102_400, 60, 5120, 128, 128, 128, 1536, attention=layers)
        assert_number(kv_bytes_per_token(config), 69_120, "bytes per token of latents")
        assert_number(kv_bytes(config, [1000, 24]), 1024 * 69_120, "bytes of latents")

    @pytest.mark.parametrize(
        "kv_heads, share, expected",
        [(16, 1, 163_840), (4, 1, 40_960), (1, 1, 10_240), (1, 2, 5_120), (1, 3, 3_584)],
    )
    def test_layers_that_share(self, kv_heads, share, expected):
        """The 1B models of arXiv:2405.12981: 20 layers, neighbours read the first of each group."""
        layers = [
            AttentionLayer(reads=None if i % share == 0 else i - i % share) for i in range(20)
        ]
        config = LlamaConfig(32_000, 20, 2048, 16, kv_heads, 128, 5461, attention=tuple(layers))
        what = f"bytes per token, K = {kv_heads}, groups of {share} layers"
        assert_number(kv_bytes_per_token(config), expected, what)

    @OF_EACH_KIND
    def test_layers_of_one_kind(self, draw, kind):
        self._compare(draw_config(draw, KINDS[kind]), [1, 7, 12])

    @pytest.mark.parametrize("window", [1, 2, 9, 16])
    def test_around_a_window(self, draw, window):
        layers = [AttentionLayer(window=window), AttentionLayer(), AttentionLayer(reads=0)]
        config = draw_config(draw, layers)
        for length in (*around(window), 3 * window):
            self._compare(config, [length])

    def test_windows_and_sharing(self):
        """48 layers at 32,768 tokens: all global, 8 global, and with every second layer shared."""
        for layers, expected in [
            ([AttentionLayer()] * 48, 6_442_450_944),
            (hybrid(), 1_241_513_984),
            (hybrid(share=2), 620_756_992),
        ]:
            config = LlamaConfig(32_000, 48, 4096, 32, 8, 128, 11_008, attention=tuple(layers))
            full, shared = (sum(x.kind == kind for x in layers) for kind in ("full", "shared"))
            what = f"kv_bytes of 32,768 tokens, 48 layers, {full} of them full, {shared} shared"
            assert_number(kv_bytes(config, [32_768]), expected, what)

    def test_layers_of_all_kinds(self, draw):
        for _ in range(4):
            self._compare(draw_config(draw), draw.integers(0, 40, 4).tolist())

    def test_one_more_token(self, draw):
        """While no window is full, it adds kv_bytes_per_token."""
        for _ in range(4):
            config = draw_config(draw)
            added = kv_bytes_per_token(config)
            expected = 2 * oracles.kept_numbers(config, [1])
            assert_number(added, expected, "kv_bytes_per_token", config)
            second = kv_bytes(config, [2]) - kv_bytes(config, [1])
            assert_number(second, expected, "kv_bytes that the second token adds", config)

    def test_each_sequence_by_its_own_length(self, draw):
        config = draw_config(draw)
        for lengths in ([17, 3, 9], [30], [0, 5], [0], [], (2, 21)):
            self._compare(config, lengths)

    def test_formats(self, draw):
        config, lengths = draw_config(draw), [13, 1, 22]
        for size in FORMATS:
            token, batch = (oracles.kept_numbers(config, x) * size for x in ([1], lengths))
            what = f"kv_bytes_per_token at {size} bytes a number"
            assert_number(kv_bytes_per_token(config, size), token, what, config)
            what = f"kv_bytes of {lengths} at {size} bytes a number"
            assert_number(kv_bytes(config, lengths, size), batch, what, config)

    def test_lengths_are_not_changed(self, draw):
        config = draw_config(draw)
        _, changed = watch(kv_bytes, config, [12, 5, 30])
        assert_equal(changed, [], what="arguments changed, by position")

    def test_refused(self, draw):
        config = draw_config(draw)
        self._compare(config, [4, 0])
        for lengths, size in [([3, -1], 2), ([3], 0), ([3], -2)]:
            with pytest.raises(ValueError):
                kv_bytes(config, lengths, size)
        for function in (kv_bytes_per_token, weight_bytes):
            with pytest.raises(ValueError):
                function(config, 0)

    def _compare(self, config, lengths):
        expected = 2 * oracles.kept_numbers(config, lengths)
        assert_number(kv_bytes(config, lengths), expected, f"kv_bytes of {lengths}", config)


def hybrid(share=1):
    """48 layers, one global in six, the others with a window of 1024; of each kind, layers in
    groups of `share`: the first of a group keeps keys and values, the others read it."""
    layers, first = [], {}
    for index in range(48):
        window = None if index % 6 == 0 else 1024
        seen = sum(1 for i in range(index) if (i % 6 == 0) == (window is None))
        if seen % share == 0:
            first[window] = index
            layers.append(AttentionLayer(window=window))
        else:
            layers.append(AttentionLayer(reads=first[window]))
    return layers


@pytest.mark.group("batch")
class TestBatch:
    @pytest.mark.parametrize(
        "kv_heads, batch, expected",
        [
            (40, 1, 26_869_760_000),
            (40, 64, 79_717_990_400),
            (40, 256, 240_779_264_000),
            (8, 64, 33_412_874_240),
            (8, 256, 65_625_128_960),
            (1, 64, 23_283_630_080),
            (1, 256, 27_310_161_920),
        ],
    )
    def test_llama_2_13b(self, kv_heads, batch, expected):
        got = memory_bytes(llama_2_13b(kv_heads), [1024] * batch)
        assert_number(got, expected, f"memory_bytes, K = {kv_heads}, {batch} sequences")

    def test_formats_of_their_own(self, draw):
        config, lengths = draw_config(draw), [13, 1, 22]
        numbers = oracles.parameters(config), oracles.kept_numbers(config, lengths)
        for weights, kept in [(2, 2), (1, 2), (2, 1), (0.5, 1), (133 / 256, 0.5)]:
            expected = numbers[0] * weights + numbers[1] * kept
            got = memory_bytes(config, lengths, weights, kept)
            what = (
                f"memory_bytes of {lengths}, weights at {weights}, cache at {kept} bytes a number"
            )
            assert_number(got, expected, what, config)

    def test_of_llama_2_13b_on_an_h100(self):
        for kv_heads, expected in [(40, 64), (8, 341), (1, 2768)]:
            got = largest_batch(llama_2_13b(kv_heads), H100, 1024)
            assert_number(got, expected, f"largest_batch, K = {kv_heads}")

    def test_an_exact_fit(self, draw):
        """Chips with room for exactly n sequences, and for one byte less or more."""
        for _ in range(3):
            config, length = draw_config(draw), one(draw, 1, 30)
            for weights, kept in [(2, 2), (1, 2), (2, 0.5), (133 / 256, 1)]:
                one_more = oracles.kept_numbers(config, [length]) * kept
                for spare in (-1, 0, 0, 1):
                    most = one(draw, 2, 300)
                    memory = oracles.parameters(config) * weights + most * one_more + spare
                    got = largest_batch(config, chip(memory), length, weights, kept)
                    what = f"largest_batch, room for {most} sequences and {spare} bytes"
                    expected = most - 1 if spare < 0 else most
                    assert_number(got, expected, what, config)

    def test_no_room(self, draw):
        config = draw_config(draw)
        weights, kept = 2 * oracles.parameters(config), 2 * oracles.kept_numbers(config, [9])
        self._check_room(config, weights + kept, 1)
        for room in (-weights // 2, -5 * kept - 1, -1, 0, 1, kept - 1):
            self._check_room(config, weights + room, 0)

    def test_refused(self, draw):
        config = draw_config(draw)
        self._check_room(config, 2 * oracles.parameters(config), 0)
        for length, weights, kept in [(0, 2, 2), (-1, 2, 2), (9, 0, 2), (9, 2, 0), (9, 2, -1)]:
            with pytest.raises(ValueError):
                largest_batch(config, H100, length, weights, kept)

    def _check_room(self, config, memory, expected):
        got = largest_batch(config, chip(memory), 9)
        assert_number(got, expected, f"largest_batch in {memory:,} bytes", config)


def chip(memory):
    return Chip("a chip", flops_per_second=1e12, bandwidth=1e9, memory=float(memory))
