"""accounting.metrics: a log sorted out by request, and what it says of requests and server."""

from __future__ import annotations

import math

import pytest

from assignment.provided.data.events import Event, Timeline
from submission.accounting.metrics import (
    end_to_end_latency,
    goodput,
    inter_token_latencies,
    percentile,
    throughput,
    time_per_output_token,
    time_to_first_token,
    timelines,
)
from tests.accounting import oracles_metrics as oracles
from tests.accounting.oracles_numbers import assert_number, assert_numbers
from tests.grading.boundary import watch
from tests.grading.closeness import assert_equal


def assert_timelines(got, expected: dict[int, Timeline]) -> None:
    """Request by request: the message shows one, not all."""
    assert_equal(sorted(got), sorted(expected), what="requests")
    for request, timeline in expected.items():
        assert_equal(got[request], timeline, what=f"request {request}")


@pytest.mark.group("timelines")
class TestTimelines:
    def test_rows_in_any_order(self, draw):
        for _ in range(6):
            expected = oracles.draw_timelines(draw)
            assert_timelines(timelines(oracles.events_of(expected, draw)), expected)

    def test_equal_times(self):
        """A request may get all at once, in rows that stand the wrong way round."""
        kinds = ["end", "token", "token", "arrival", "token"]
        log = [Event(2.5, 9, kind) for kind in kinds] + [Event(2.5, 3, "arrival")]
        expected = {9: Timeline(2.5, (2.5, 2.5, 2.5), True), 3: Timeline(2.5, (), False)}
        assert_timelines(timelines(log), expected)

    def test_finished_or_not(self):
        log = [
            Event(1.0, 1, "arrival"),
            Event(3.0, 2, "token"),
            Event(2.0, 1, "end"),
            Event(0.5, 2, "arrival"),
            Event(0.0, 3, "arrival"),
        ]
        expected = {
            1: Timeline(1.0, (), True),  # no token, and none to come
            2: Timeline(0.5, (3.0,), False),
            3: Timeline(0.0, (), False),
        }
        assert_timelines(timelines(log), expected)

    def test_an_empty_log(self):
        assert_timelines(timelines([Event(1.0, 5, "arrival")]), {5: Timeline(1.0)})
        assert_timelines(timelines([]), {})

    def test_the_log_is_not_changed(self, draw):
        expected = oracles.draw_timelines(draw)
        log = oracles.events_of(expected, draw)
        got, changed = watch(timelines, log)
        assert changed == [], "the list of events was changed"
        assert_timelines(got, expected)
        assert_timelines(timelines(tuple(log)), expected)


@pytest.mark.group("timelines")
class TestLogsThatCannotBeTrue:
    def test_the_log_without_the_fault(self):
        expected = {
            5: Timeline(1.0, (2.0, 3.0), True),
            6: Timeline(1.5, (2.5,), False),
            8: Timeline(5.0),
        }
        assert_timelines(timelines(oracles.TRUE_LOG), expected)

    @pytest.mark.parametrize("fault", oracles.FAULTS)
    def test_one_row_too_many(self, draw, fault):
        rows = [*oracles.TRUE_LOG, oracles.FAULTS[fault]]
        for order in (range(len(rows)), draw.permutation(len(rows)).tolist()):
            with pytest.raises(ValueError):
                timelines([rows[row] for row in order])

    @pytest.mark.parametrize("fault", oracles.FAULTS_WITHOUT_TOKENS)
    def test_a_request_without_tokens(self, fault):
        with pytest.raises(ValueError):
            timelines(oracles.FAULTS_WITHOUT_TOKENS[fault])

    def test_a_negative_time_is_a_time(self):
        """The clock may start anywhere."""
        log = [Event(-1.0, 2, "token"), Event(-3.0, 2, "arrival"), Event(0.0, 2, "end")]
        assert_timelines(timelines(log), {2: Timeline(-3.0, (-1.0,), True)})


STREAM = Timeline(0.0, tuple(0.4 + 0.02 * i for i in range(101)), True)  # 0.40 s, then to 2.40 s
UNEVEN = Timeline(10.0, (13.0, 13.5, 15.0), True)  # the docstrings' example
BURST = Timeline(3.0, (3.25, 3.25, 3.75, 3.75, 4.25), False)
LATE = Timeline(100.0, (164.0, 164.125), True)  # the wait for the first token outweighs the rest
ONE = Timeline(2.0, (2.75,), True)
ONE_OPEN = Timeline(2.0, (2.75,), False)
WAITING = Timeline(5.0)
UNSERVED = Timeline(5.0, (), True)
AT_ONCE = Timeline(7.0, (7.0, 7.0, 7.0), True)


def assert_each(metric, name, cases) -> None:
    for timeline, expected in cases:
        shown = "101 tokens evenly from 0.4 to 2.4 s" if timeline is STREAM else timeline
        assert_number(metric(timeline), expected, what=f"{name} of {shown}")


@pytest.mark.group("requests")
class TestOneRequest:
    def test_time_to_first_token(self):
        cases = [(STREAM, 0.4), (UNEVEN, 3.0), (BURST, 0.25), (LATE, 64.0), (ONE, 0.75)]
        cases += [(ONE_OPEN, 0.75), (WAITING, None), (UNSERVED, None), (AT_ONCE, 0.0)]
        assert_each(time_to_first_token, "TTFT", cases)

    def test_time_per_output_token(self):
        cases = [(STREAM, 0.02), (UNEVEN, 1.0), (BURST, 0.25), (LATE, 0.125), (ONE, None)]
        cases += [(ONE_OPEN, None), (WAITING, None), (UNSERVED, None), (AT_ONCE, 0.0)]
        assert_each(time_per_output_token, "TPOT", cases)

    def test_end_to_end_latency(self):
        cases = [(STREAM, 2.4), (UNEVEN, 5.0), (BURST, None), (LATE, 64.125), (ONE, 0.75)]
        cases += [(ONE_OPEN, None), (WAITING, None), (UNSERVED, None), (AT_ONCE, 0.0)]
        assert_each(end_to_end_latency, "latency", cases)

    def test_inter_token_latencies(self):
        for timeline, expected in [
            (STREAM, [0.02] * 100),
            (UNEVEN, [0.5, 1.5]),
            (BURST, [0.0, 0.5, 0.0, 0.5]),
            (LATE, [0.125]),
            (ONE, []),
            (WAITING, []),
            (AT_ONCE, [0.0, 0.0]),
        ]:
            got = inter_token_latencies(timeline)
            assert_numbers(got, expected, what=f"gaps of {len(timeline.tokens)} tokens")

    def test_what_holds_for_every_request(self, draw):
        for timeline in oracles.draw_timelines(draw).values():
            arrival, tokens = timeline.arrival, timeline.tokens
            gaps = [tokens[i] - tokens[i - 1] for i in range(1, len(tokens))]
            mean_gap = sum(gaps) / len(gaps) if gaps else None
            end = tokens[-1] - arrival if tokens and timeline.finished else None
            wait = tokens[0] - arrival if tokens else None
            assert_each(time_to_first_token, "TTFT", [(timeline, wait)])
            assert_each(time_per_output_token, "TPOT", [(timeline, mean_gap)])
            assert_each(end_to_end_latency, "latency", [(timeline, end)])
            assert_numbers(inter_token_latencies(timeline), gaps, what=f"gaps of {timeline}")


@pytest.mark.group("server")
class TestThroughput:
    def test_eight_equal_streams(self):
        """808 tokens in 2.4 s: the wait for the first one counts."""
        assert_number(throughput([STREAM] * 8), 808 / 2.4, "tokens/s")

    def test_one_after_the_other(self):
        """Each alone gives 2 tokens in 1 s; both together give 4 in the 10 s between."""
        first, last = Timeline(0.0, (0.5, 1.0), True), Timeline(9.0, (9.5, 10.0), True)
        assert_number(throughput([last, first]), 0.4, "tokens/s")

    def test_all_tokens_count_and_all_arrivals(self):
        log = [
            Timeline(4.0, (5.0, 6.0, 6.0), True),
            Timeline(3.0, (3.5, 8.0), False),  # open, and the last to get a token
            Timeline(1.0, (), False),  # still waits, and was the first to come
            Timeline(9.0, (), True),
        ]
        assert_number(throughput(log), 5 / 7, "tokens/s")
        assert_number(throughput(tuple(log[::-1])), 5 / 7, "tokens/s in another order")

    def test_any_log(self, draw):
        for _ in range(4):
            log = list(oracles.draw_timelines(draw).values())
            log.append(Timeline(3.0, (4.0, 7.0), True))
            tokens = [time for timeline in log for time in timeline.tokens]
            span = max(tokens) - min(timeline.arrival for timeline in log)
            assert_number(throughput(log), len(tokens) / span, "tokens/s")

    def test_no_token_and_no_span(self):
        assert_number(throughput([AT_ONCE, Timeline(6.0)]), 3.0, "tokens/s")
        for log in ([], [WAITING], [WAITING, UNSERVED, Timeline(6.0)]):
            assert_number(throughput(log), 0.0, f"tokens/s of {log}")
        for log in ([AT_ONCE], [AT_ONCE, Timeline(7.0), Timeline(8.0)]):
            assert_number(throughput(log), math.inf, f"tokens/s of {log}")


JUDGED = {  # by a TTFT of at most 1 s and a TPOT of at most 0.25 s: good or not
    "exactly_both_targets": (Timeline(10.0, (11.0, 11.25, 11.5), True), True),
    "well_within": (Timeline(10.0, (10.5, 10.5, 10.5), True), True),
    "one_long_gap_but_the_mean_is_met": (Timeline(10.0, (10.5, 10.5, 11.0), True), True),
    "one_token": (Timeline(10.0, (11.0,), True), True),
    "ttft_missed": (Timeline(10.0, (11.125, 11.25, 11.375), True), False),
    "tpot_missed": (Timeline(10.0, (10.125, 10.375, 10.75), True), False),
    "both_missed": (Timeline(10.0, (12.0, 13.0), True), False),
    "one_late_token": (Timeline(10.0, (11.125,), True), False),
    "not_finished": (Timeline(10.0, (10.5, 10.75), False), False),
    "one_token_not_finished": (Timeline(10.0, (10.5,), False), False),
    "finished_without_a_token": (Timeline(10.0, (), True), False),
    "waiting": (Timeline(10.0), False),
}


@pytest.mark.group("server")
class TestGoodput:
    @pytest.mark.parametrize("case", JUDGED)
    def test_which_requests_count(self, case):
        """Beside it a good request, and a bad one that stretches the span to 16 s."""
        timeline, good = JUDGED[case]
        others = [Timeline(12.0, (12.5, 12.5), True), Timeline(8.0, (20.0, 24.0), True)]
        expected = (2 if good else 1) / 16
        got = goodput([others[0], timeline, others[1]], 1.0, 0.25)
        assert_number(got, expected, "good requests/s")

    def test_each_target_by_itself(self):
        log = [timeline for timeline, _ in JUDGED.values()]  # the last token comes after 3 s
        for targets, good in [
            ((1.0, 0.25), 4),
            ((math.inf, 0.25), 6),
            ((1.0, math.inf), 5),
            ((math.inf, math.inf), 8),
            ((0.5, 0.25), 2),
            ((1.0, 0.125), 2),
            ((0.0625, 0.25), 0),
        ]:
            expected = good / 3
            assert_number(goodput(log, *targets), expected, f"good requests/s within {targets}")

    def test_tokens_do_not_count(self):
        """Eight streams of 101 tokens are eight requests."""
        assert_number(goodput([STREAM] * 8, 0.5, 0.021), 8 / 2.4, "good requests/s")

    def test_the_span_is_that_of_all_requests(self):
        """The first to come still waits, the last to get a token goes on: neither is good."""
        log = [Timeline(1.0), Timeline(3.0, (3.5, 3.75), True), Timeline(4.0, (4.5, 9.0), False)]
        assert_number(goodput(log, 1.0, 0.25), 1 / 8, "good requests/s")

    def test_near_misses(self):
        """By a millionth of a second."""
        late = 2.0**-20
        for tokens in [(11.0 + late, 11.25), (10.5, 10.75 + late)]:
            log = [Timeline(10.0, tokens, True), Timeline(10.0, (10.5, 10.75), True)]
            assert_number(goodput(log, 1.0, 0.25), 1 / (tokens[-1] - 10.0), "good requests/s")

    def test_none_good_in_no_span(self):
        log = [Timeline(7.0, (7.0, 7.0), False)]
        assert_number(goodput(log, 1.0, 1.0), 0.0, "good requests/s")

    def test_none_good_and_no_span(self):
        assert_number(goodput([ONE, WAITING], 1.0, 1.0), 1 / 0.75, "good requests/s")
        for log in ([], [WAITING], [UNSERVED], [ONE_OPEN], [UNEVEN]):
            assert_number(goodput(log, 1.0, 1.0), 0.0, f"good requests/s of {log}")
        assert_number(goodput([AT_ONCE], 1.0, 1.0), math.inf, f"good requests/s of {[AT_ONCE]}")


PERCENTS = [0.0, 1.0, 7.0, 12.5, 14.0, 25.0, 28.0, 33.0, 50.0, 51.0, 55.0, 62.5, 75.0, 90.0]
PERCENTS += [99.0, 99.5, 100.0, 1e-9]


@pytest.mark.group("percentile")
class TestPercentile:
    def test_by_hand(self):
        values = [4.0, 1.0, 3.0, 2.0]
        for percent, expected in [(0, 1), (25, 1), (26, 2), (50, 2), (51, 3), (75, 3), (100, 4)]:
            assert_number(percentile(values, float(percent)), expected, f"p{percent} of {values}")

    @pytest.mark.parametrize("size", [1, 2, 3, 8, 25, 100])
    def test_definition(self, draw, size):
        """In 7 of 100 and 28 of 25 or 100, percent / 100 · n is rounded to above a whole number."""
        values = draw.normal(size).tolist()
        for percent in PERCENTS:
            expected = oracles.percentile(values, percent)
            assert_number(percentile(values, percent), expected, f"p{percent:g} of {size} values")

    def test_equal_values(self, draw):
        values = draw.integers(0, 4, 15).double().tolist()
        for percent in PERCENTS:
            expected = oracles.percentile(values, percent)
            assert_number(percentile(values, percent), expected, f"p{percent:g} of {values}")

    def test_the_values_are_not_changed(self):
        got, changed = watch(percentile, [3.0, 1.0, 2.0], 100.0)
        assert changed == [], "the list of values was changed"
        assert_number(got, 3.0, "p100 of [3.0, 1.0, 2.0]")
        assert_number(percentile((3.0, 1.0, 2.0), 50.0), 2.0, "p50 of (3.0, 1.0, 2.0)")

    def test_what_makes_no_sense(self):
        assert_number(percentile([3.0, 1.0], 100.0), 3.0, "p100 of [3.0, 1.0]")
        for values, percent in [([], 50.0), ([], 0.0), ([1.0, 2.0], -0.5), ([1.0, 2.0], 100.5)]:
            with pytest.raises(ValueError):
                percentile(values, percent)
