"""serving.paged_cache: every request reads its own tokens, from as few blocks as there can be."""

from __future__ import annotations

import re

import pytest

from assignment.provided.data.traces import named_trace
from submission.provided.serving import run_script
from submission.serving.paged_cache import PagedCache
from tests.grading.boundary import call_then_spoil, count_lines, watch
from tests.grading.closeness import assert_equal
from tests.grading.refusal import assert_value_error
from tests.grading.shapes import around
from tests.serving.paged_costs import samples, serve, step
from tests.serving.paged_memory import PagedMemory, telling
from tests.serving.paged_scripts import search


def run(num_blocks, block_size, *calls, strong=True, **options):
    """Calls on a new cache, as ("open", 0, [5, 6, 7]): their outcomes, checked by PagedMemory.

    ("commit", 0) commits all that request 0 has left.
    """
    calls = [(name, list(arguments)) for name, *arguments in calls]
    memory = PagedMemory(num_blocks, block_size, options.get("prefix_caching", True), strong)
    cache = PagedCache(num_blocks, block_size, **options)
    with telling(calls):
        outcomes = run_script(cache, calls)
    memory.follow(calls, outcomes)
    return outcomes


def assert_found(expected, *arguments, **options):
    """The last call of a script, an `open`, finds so many tokens computed."""
    assert_equal(run(*arguments, **options)[-1].value, expected, what="computed already")


def assert_names(outcome, *numbers):
    for number in numbers:
        named = re.search(rf"(?<![\w.-]){number}(?!\w)", outcome.message)
        assert named, f"expected a message that names {number}, got {outcome.message!r}"


@pytest.fixture
def text(draw):
    """text(n): n token ids that are in no other text of this test."""
    ids = iter(draw.permutation(40_000).tolist())
    return lambda n: [next(ids) for _ in range(n)]


@pytest.mark.group("tables")
class TestTables:
    @pytest.mark.parametrize("size", [1, 3, 4, 16])
    def test_a_block_is_taken_when_it_is_needed(self, text, size):
        for length in {1, *around(size), *around(3 * size)} - {0}:
            steps = [call for _ in range(size + 1) for call in step(0, text(1))]
            first, *_ = run(8, size, ("open", 0, text(length)), ("commit", 0), *steps)
            assert_equal(len(first.tables[0]), -(-length // size), what="blocks")

    def test_requests_in_turn_keep_their_tokens(self, text):
        calls = [("open", request, text(3 * request + 1)) for request in range(4)]
        calls += [("commit", 2, 3), ("commit", 0), ("commit", 2, 0), ("commit", 3), ("commit", 1)]
        for request in (2, 3, 0, 2, 1, 1, 0, 3, 3, 2):
            calls += [("commit", 2), *step(request, text(request + 1))]
        run(40, 4, *calls)

    def test_tokens_are_computed_in_pieces(self, text):
        calls = [("open", 0, text(11)), ("append", 0, text(6))]
        outcomes = run(6, 4, *calls, *[("commit", 0, count) for count in (1, 0, 6, 1, 9)])
        got = [outcome.computed[0] for outcome in outcomes]
        assert_equal(got, [0, 0, 1, 1, 7, 8, 17], what="computed")

    def test_a_number_is_used_again(self, text):
        run(6, 4, *serve(3, text(9)), *serve(3, text(21)), *serve(3, text(4)))

    def test_caches_do_not_share(self, text):
        caches, tokens = [PagedCache(3, 4), PagedCache(3, 4)], text(9)
        for cache in caches:
            assert_equal(cache.open(0, tokens), 0, what="computed already")
            cache.commit(0, 9)
            assert_equal(cache.num_free, 0, what="num_free")

    def test_all_blocks_and_not_one_more(self, text):
        for length in around(24):
            opened = run(6, 4, ("open", 0, text(length)))[-1]
            added = run(6, 4, ("open", 0, text(13)), ("append", 0, text(length - 13)))[-1]
            expected = "OutOfBlocks" if length > 24 else ""
            assert_equal([opened.error, added.error], [expected] * 2, what="refused")

    def test_one_too_large_is_refused_and_the_others_go_on(self, text):
        calls = [("open", 1, text(6)), ("commit", 1), ("open", 31, text(29))]
        calls += [("append", 1, text(19)), ("append", 1, text(18)), ("commit", 1), ("close", 1)]
        outcomes = run(6, 4, *calls)
        assert_names(outcomes[2], 31, 8, 4)  # its number, blocks needed, blocks free
        assert_names(outcomes[3], 1, 5, 4)
        assert_equal(outcomes[-1].num_free, 6, what="num_free")

    def test_calls_that_make_no_sense(self, text):
        opened = [("open", 31, text(9)), ("commit", 31, 4), ("open", 32, text(2))]
        wrong = [("open", 31, [1]), ("open", 77, []), ("append", 31, []), ("append", 77, [1])]
        wrong += [("commit", 31, 6), ("commit", 31, -1), ("commit", 77, 0), ("close", 77)]
        wrong += [("table", 77), ("length", 77), ("computed", 77), ("fork", 77, 78)]
        outcomes = run(9, 4, *opened, *wrong, ("close", 31), ("close", 31), ("append", 31, [1]))
        for (_, request, *_), outcome in zip(wrong, outcomes[3:], strict=False):
            assert_names(outcome, request)
        assert_names(outcomes[3 + 4], 6)
        assert_names(outcomes[3 + 5], -1)

    def test_sizes_that_make_no_sense(self):
        for sizes in [(0, 4), (4, 0), (-1, 4), (4, -1)]:
            assert_value_error(f"PagedCache{sizes}", PagedCache, *sizes)
        run(1, 1, ("open", 0, [5]))

    def test_the_callers_lists_stay_the_callers(self, text):
        cache = PagedCache(9, 4)
        for target, tokens in ((cache.open, text(6)), (cache.append, text(3))):
            _, changed = watch(target, 0, list(tokens))
            assert changed == [], "open or append changed the caller's tokens"
            call_then_spoil(target, 1, list(tokens))
        for request in (0, 1):
            cache.table(request).clear()
            assert_equal(len(cache.table(request)), 3, what="blocks")
            assert_equal(cache.length(request), 9, what="length")

    def test_tuples_are_as_good_as_lists(self, text):
        run(9, 4, ("open", 0, tuple(text(5))), ("commit", 0), *step(0, tuple(text(6))))

    def test_waste_on_a_trace(self, text):
        """64 ragged requests at their full lengths, blocks of 16: slots in tables without a token.

        A request's last new token is never computed and needs no slot.
        """
        calls = []
        for request in named_trace("batch"):
            calls.append(("open", request.id, text(len(request.prompt))))
            if request.output_length > 1:
                calls.append(("append", request.id, text(request.output_length - 1)))
        last = run(1000, 16, *calls)[-1]
        waste = 1 - sum(last.lengths.values()) / (16 * sum(map(len, last.tables.values())))
        assert waste < 0.04, f"expected less than 4% of the slots in tables unused, got {waste:.1%}"


@pytest.mark.group("sharing")
class TestSharing:
    def test_a_fork_takes_no_block(self, text):
        for length in (1, 7, 8, 9):
            calls = [("open", 0, text(length)), ("commit", 0), ("fork", 0, 1), ("fork", 1, 2)]
            last = run(3, 4, *calls)[-1]
            assert_equal(last.num_free, 3 - -(-length // 4), what="num_free")

    @pytest.mark.parametrize("writers", [(0, 1, 2), (2, 0, 1), (1, 1, 2, 2, 0, 0)])
    def test_all_but_the_last_writer_get_a_copy(self, text, writers):
        calls = [("open", 0, text(6)), ("commit", 0), ("fork", 0, 1), ("fork", 0, 2)]
        calls += [call for request in writers for call in step(request, text(1))]
        appended = run(9, 4, *calls)[4::2]
        assert_equal(sum(len(outcome.value) for outcome in appended), 2, what="copies")

    def test_only_the_block_that_is_written_is_copied(self, text):
        calls = [("open", 0, text(14)), ("commit", 0), ("fork", 0, 1), ("append", 1, text(9))]
        last = run(9, 4, *calls)[-1]
        same = [a == b for a, b in zip(last.tables[0], last.tables[1], strict=False)]
        assert_equal(same, [True, True, True, False], what="blocks in common")

    def test_nothing_is_written_to_full_blocks(self, text):
        calls = [("open", 0, text(8)), ("commit", 0), ("fork", 0, 1)]
        outcomes = run(4, 4, *calls, *step(0, text(1)), *step(1, text(2)))
        assert_equal([outcome.value for outcome in outcomes[3::2]], [[], []], what="copies")

    def test_a_copy_needs_a_block(self, text):
        calls = [("open", 0, text(6)), ("commit", 0), ("fork", 0, 1), ("open", 2, text(1))]
        calls += [("append", 0, text(1)), ("append", 1, text(2)), ("close", 2)]
        outcomes = run(3, 4, *calls, *step(1, text(2)), *step(0, text(2)))
        errors = [outcomes[i].error for i in (4, 5, 7, 9)]
        assert_equal(errors, ["OutOfBlocks", "OutOfBlocks", "", ""], what="refused")
        assert_names(outcomes[4], 0, 1)

    def test_a_fork_outlives_its_parent(self, text):
        calls = [("open", 0, text(6)), ("commit", 0), ("fork", 0, 1), ("close", 0)]
        calls += [("open", 2, text(8)), ("commit", 2), *step(1, text(3)), ("close", 1)]
        assert_equal(run(5, 4, *calls)[6].value, [], what="copies of what nobody else holds")

    def test_what_is_not_computed_is_not_shared(self, text):
        calls = [("open", 31, text(6)), ("commit", 31, 5), ("fork", 31, 32), ("commit", 31)]
        calls += [("fork", 31, 31), ("fork", 31, 32), ("append", 32, text(1)), ("fork", 32, 33)]
        outcomes = run(9, 4, *calls)
        assert_names(outcomes[2], 31)
        assert_names(outcomes[7], 32)

    def test_four_samples_of_a_long_prompt(self, text):
        """Prompt 1000, 4 samples of 100 tokens, blocks of 16: 62 shared blocks and 7 each."""
        calls = [("open", 0, text(1000)), ("commit", 0), *[("fork", 0, r) for r in (1, 2, 3)]]
        calls += [call for _ in range(4) for r in range(4) for call in step(r, text(25))]
        last = run(300, 16, *calls)[-1]
        assert_equal(300 - last.num_free, 62 + 4 * 7, what="blocks in use")
        assert_equal(sum(map(len, last.tables.values())), 276, what="blocks without sharing")


@pytest.mark.group("prefixes")
class TestPrefixes:
    @pytest.mark.parametrize("size", [1, 3, 4])
    def test_whole_blocks_of_all_but_the_last_token(self, text, size):
        tokens = text(3 * size)
        for length in [*around(2 * size), *around(3 * size)]:
            prompt = [*tokens, 50_000][:length]
            expected = (length - 1) // size * size
            assert_found(expected, 9, size, *serve(0, tokens), ("open", 1, prompt))

    def test_one_token_is_left_of_nine(self, text):
        tokens = text(9)
        last = run(9, 4, *serve(0, tokens[:8]), ("open", 1, tokens))[-1]
        assert_equal(last.lengths[1] - last.computed[1], 1, what="left to compute")

    def test_running_requests_share_and_need_no_room_for_it(self, text):
        tokens = text(8)
        calls = [("open", 0, [*tokens, *text(2)]), ("commit", 0), ("open", 1, [*tokens, *text(3)])]
        assert_equal(run(4, 4, *calls)[-1].num_free, 0, what="num_free")

    def test_a_block_counts_from_the_first_on(self, text):
        """The same tokens behind others have other keys and values."""
        a, b, c = text(4), text(4), text(4)
        calls = [*serve(0, [*a, *c, 1]), *serve(1, [*a, *b, 1]), ("open", 2, [*b, *c, 1])]
        assert_found(0, 12, 4, *calls)
        for tokens, found in [(c + a, 0), (a + a + b, 4), (a + c + b, 8), (a[1:] + b, 0)]:
            assert_found(found, 12, 4, *serve(0, a + c), ("open", 2, [*tokens, 1]))

    def test_a_text_of_one_token(self):
        for length in range(2, 20):
            run(12, 3, *serve(0, [7] * 6), *serve(1, [7] * length), ("open", 2, [7] * 20))

    def test_only_what_is_computed_is_found(self, text):
        tokens = text(12)
        for count, found in [(0, 0), (3, 0), (4, 4), (7, 4), (8, 8)]:
            calls = [("open", 0, tokens), ("commit", 0, count)]
            assert_found(found, 9, 4, *calls, ("open", 1, [*tokens, 1]))
            assert_found(found, 9, 4, *calls, ("close", 0), ("open", 1, [*tokens, 1]))

    def test_new_tokens_are_found_as_prompts_are(self, text):
        tokens = text(21)
        calls = [("open", 0, tokens[:6]), ("commit", 0)]
        calls += [call for i in range(6, 21, 3) for call in step(0, tokens[i : i + 3])]
        assert_found(20, 12, 4, *calls, ("open", 1, tokens))

    def test_forks_publish_what_they_write(self, text):
        a, b, c = text(6), text(10), text(10)
        calls = [("open", 0, a), ("commit", 0), ("fork", 0, 1)]
        for i in (0, 5):
            calls += [*step(1, b[i : i + 5]), *step(0, c[i : i + 5])]
        for own in (b, c):
            assert_found(16, 20, 4, *calls, ("open", 2, [*a, *own, 1]))

    def test_a_long_prefix(self, text):
        tokens = text(200)
        assert_found(200, 51, 4, *serve(0, tokens), ("open", 1, [*tokens, 1]))

    def test_the_same_prompt_at_the_same_time(self, text):
        tokens = text(11)
        calls = [("open", r, [*tokens, r]) for r in range(3)]
        calls += [("commit", 1), ("commit", 0, 6), ("commit", 2), ("commit", 0), ("close", 1)]
        assert_found(8, 15, 4, *calls, ("open", 3, [*tokens, 3]))
        calls += [("close", 2), ("close", 0)]
        assert_found(8, 15, 4, *calls, ("open", 3, [*tokens, 3]))

    def test_the_callers_list_is_not_what_is_found(self, text):
        cache, tokens = PagedCache(9, 4), text(9)
        call_then_spoil(cache.open, 0, tokens[:6])
        call_then_spoil(cache.append, 0, tokens[6:8])
        cache.commit(0, 8)
        assert_equal(cache.open(1, tokens), 8, what="computed already")

    def test_no_prefix_caching(self, text):
        tokens = text(9)
        calls = [("open", 0, tokens), ("commit", 0), ("open", 1, tokens), ("close", 0)]
        outcomes = run(9, 4, *calls, ("open", 2, tokens), prefix_caching=False)
        assert_equal(outcomes[-1].num_free, 9 - 6, what="num_free")

    def test_keys_are_made_of_the_key_before(self, text):
        tokens, seen = text(12), set()

        def key(before, block):
            seen.add((before, tuple(block)))
            return block[-1]

        run(9, 4, *serve(0, tokens), ("open", 1, [*tokens, 1]), hash_block=key)
        a, b, c = (tuple(tokens[i : i + 4]) for i in (0, 4, 8))
        others = seen - {(None, a), (a[-1], b), (b[-1], c)}
        assert_equal(others, set(), what="other (before, tokens)")

    @pytest.mark.parametrize(
        "key",
        [lambda *_: 0, lambda before, tokens: sum(tokens), lambda before, _: (before or 0) + 1],
        ids=["one for all", "of a block's tokens alone", "of the place alone"],
    )
    def test_keys_find_and_tokens_decide(self, text, key):
        a, b, c = text(4), text(4), text(4)
        calls = [*serve(0, a + b + c), *serve(1, b + c), *serve(2, a[::-1] + c)]
        calls += [("open", r, [*tokens, 1]) for r, tokens in enumerate([c, b + a, a + c, c + b])]
        run(24, 4, *calls, hash_block=key, strong=False)


@pytest.mark.group("eviction")
class TestEviction:
    """Blocks of 2. What is still there shows when a text of before is opened once more."""

    def test_unpublished_blocks_go_first(self, text):
        a = text(4)
        calls = [*serve(0, a), ("open", 1, text(4)), ("close", 1), *serve(2, text(1))]
        assert_found(4, 6, 2, *calls, ("open", 3, text(8)), ("close", 3), ("open", 4, [*a, 1]))

    def test_of_the_published_the_one_free_for_longest(self, text):
        texts = [text(4) for _ in range(3)]
        before = [call for r, tokens in enumerate(texts) for call in serve(r, tokens)]
        for taken in range(1, 7):
            calls = [*before, ("open", 3, text(2 * taken)), ("close", 3)]
            got = [run(6, 2, *calls, ("open", 4, [*tokens, 1]))[-1].value for tokens in texts]
            left = [max(0, min(4, 4 * (i + 1) - 2 * taken)) for i in range(3)]
            assert_equal(got, left, what=f"found of each text after {taken} blocks were taken")

    def test_use_renews(self, text):
        a, b = text(4), text(4)
        calls = [*serve(0, a), *serve(1, b), *serve(2, [*a, 1]), ("open", 3, text(6)), ("close", 3)]
        assert_found(4, 5, 2, *calls, ("open", 4, [*a, 1]))
        assert_found(0, 5, 2, *calls, ("open", 4, [*b, 1]))

    def test_free_since_the_last_one_let_go(self, text):
        a, b = text(4), text(4)
        calls = [("open", 0, a), ("commit", 0), ("fork", 0, 1), ("close", 0), *serve(2, b)]
        calls += [("close", 1), ("open", 3, text(6)), ("close", 3)]
        assert_found(4, 5, 2, *calls, ("open", 4, [*a, 1]))
        assert_found(0, 5, 2, *calls, ("open", 4, [*b, 1]))

    def test_prefixes_lose_their_ends(self, text):
        a = text(8)
        for taken in range(1, 5):
            calls = [*serve(0, a), ("open", 1, text(2 * (taken + 2))), ("close", 1)]
            assert_found(8 - 2 * taken, 6, 2, *calls, ("open", 2, [*a, 1]))

    def test_the_end_is_in_the_table_not_in_the_numbers(self, text):
        """The second text may get the blocks of the first in any order, as the last one first."""
        a, b = text(8), text(8)
        for taken in range(1, 4):
            last = [("open", 2, text(2 * taken)), ("close", 2)]
            for first in ([], serve(0, a)):
                calls = [*first, *serve(1, b), *last, ("open", 3, [*b, 1][:7])]
                assert_found(min(6, 8 - 2 * taken), 4, 2, *calls)

    def test_what_a_rollback_gives_back_is_free_since_then(self, text):
        """A free block with nothing in it goes first, then b, then a, each from its end on."""
        a, b = text(4), text(4)
        calls = [("open", 0, a), ("commit", 0), *serve(1, b), ("truncate", 0, 0)]
        for taken, found in [(1, 4), (2, 4), (3, 4), (4, 2), (5, 0)]:
            last = [("open", 2, text(2 * taken)), ("close", 2)]
            assert_found(found, 5, 2, *calls, *last, ("open", 3, [*a, 1]))

    def test_a_refused_open_renews_nothing(self, text):
        a, b = text(4), text(4)
        calls = [*serve(0, a), *serve(1, b), ("open", 2, a + text(8)), ("open", 3, text(4))]
        outcomes = run(5, 2, *calls, ("close", 3), ("open", 4, [*b, 1]))
        assert_equal([outcomes[6].error, outcomes[-1].value], ["OutOfBlocks", 4])

    def test_the_first_of_two_stays_published(self, text):
        a = text(4)
        calls = [("open", 0, a), ("open", 1, a), ("commit", 0), ("commit", 1), ("close", 1)]
        calls += [("open", 2, text(8)), ("close", 2)]
        assert_found(4, 6, 2, *calls, ("open", 3, [*a, 1]))

    def test_what_was_taken_is_published_again(self, text):
        a = text(4)
        assert_found(4, 5, 2, *serve(0, a), *serve(1, text(10)), *serve(2, a), ("open", 3, [*a, 1]))

    def test_a_block_for_new_tokens_is_no_longer_found(self, text):
        a, b = text(8), text(8)
        calls = [*serve(0, a), *serve(1, b)]
        assert_found(0, 4, 2, *calls, ("open", 2, [*a[:6], 1]))
        assert_found(6, 4, 2, *calls, ("open", 2, [*b[:6], 1]))

    def test_what_is_held_is_not_taken(self, text):
        a = text(6)
        calls = [*serve(0, a), ("open", 1, [*a, 1]), ("open", 2, text(5)), ("open", 3, text(4))]
        outcomes = run(6, 2, *calls, ("commit", 3), ("append", 1, text(2)), ("close", 3))
        errors = [outcome.error for outcome in outcomes[-5:]]
        assert_equal(errors, ["OutOfBlocks", "", "", "OutOfBlocks", ""], what="refused")

    def test_what_is_found_needs_room_too(self, text):
        """5 free blocks, of which 2 are found, and 4 more are needed."""
        a = text(4)
        calls = [*serve(0, a), ("open", 1, a + text(8)), ("open", 2, a + text(6))]
        refused, opened = run(5, 2, *calls)[-2:]
        assert_equal(refused.error, "OutOfBlocks", what="refused")
        assert_equal([opened.value, opened.num_free], [4, 0], what="computed, num_free")

    def test_idle_means_empty(self, text):
        a, b = text(9), text(6)
        calls = [("open", 0, a), ("open", 1, b), ("commit", 0), ("fork", 0, 2), ("append", 2, b)]
        calls += [("open", 3, text(30)), ("close", 0), ("open", 4, [*a, 1]), ("commit", 2, 1)]
        calls += [("truncate", 2, 3), ("close", 1), ("close", 4), ("close", 2)]
        last = run(16, 2, *calls, *serve(5, text(32)))[-1]
        assert_equal(last.num_free, 16, what="num_free")


@pytest.mark.group("rollback")
class TestRollback:
    def test_rejected_drafts(self, text):
        """Two requests take blocks in turn, so that no table is contiguous."""
        for kept in range(6):
            calls = [("open", 0, text(5)), ("open", 1, text(3)), ("commit", 0), ("commit", 1)]
            for length in (5, 5 + kept, 5 + 2 * kept):
                calls += [*step(0, text(5)), *step(1, text(3)), ("truncate", 0, length + kept)]
            run(20, 2, *calls)

    @pytest.mark.parametrize("computed", [0, 5, 12])
    def test_any_length_is_kept(self, text, computed):
        for length in range(13):
            calls = [("open", 0, text(12)), ("commit", 0, computed), ("open", 1, text(3))]
            calls += [("truncate", 0, length), *step(0, text(5))]
            before, after = run(9, 4, *calls)[2:4]
            assert_equal(after.tables[0], before.tables[0][: -(-length // 4)], what="table")
            assert_equal(after.computed[0], min(computed, length), what="computed")

    def test_lengths_that_are_not_held(self, text):
        calls = [("open", 31, text(9)), ("truncate", 31, 10), ("truncate", 31, -1)]
        outcomes = run(9, 4, *calls, ("truncate", 77, 0), ("truncate", 31, 9))
        assert_names(outcomes[1], 31, 10)
        assert_names(outcomes[2], 31, -1)

    def test_a_block_that_is_written_to_is_not_found(self, text):
        a = text(8)
        for length in (5, 7):
            calls = [("open", 0, a), ("commit", 0), ("truncate", 0, length), *step(0, text(2))]
            assert_found(4, 9, 4, *calls[:-1], ("open", 1, [*a, 1]))
            assert_found(4, 9, 4, *calls, ("open", 1, [*a, 1]))

    def test_behind_a_block_that_is_written_to_nothing_is_found(self, text):
        a = text(8)
        for length in (1, 2):
            calls = [("open", 0, a), ("commit", 0), ("truncate", 0, length), *step(0, text(2))]
            assert_found(0, 9, 4, *calls, ("open", 1, [*a, 1]))

    def test_a_refused_append_withdraws_nothing(self, text):
        a = text(8)
        calls = [("open", 0, a), ("commit", 0), ("truncate", 0, 7), ("append", 0, text(6))]
        outcomes = run(3, 4, *calls, ("open", 1, [*a, 1]))
        assert_equal([outcomes[3].error, outcomes[-1].value], ["OutOfBlocks", 8])

    def test_what_is_written_instead_is_found(self, text):
        a, b = text(6), text(3)
        calls = [("open", 0, [*a, 1, 2]), ("commit", 0), ("truncate", 0, 6), *step(0, b)]
        assert_found(8, 9, 4, *calls, ("open", 1, a + b))

    def test_what_others_share_is_copied_first(self, text):
        a = text(8)
        calls = [("open", 0, a), ("commit", 0), ("open", 1, [*a, 1]), ("truncate", 0, 6)]
        outcomes = run(9, 4, *calls, *step(0, text(1)), ("open", 2, [*a, 2]))
        assert_equal(len(outcomes[4].value), 1, what="copies")
        assert_equal(outcomes[-1].value, 8, what="computed already")

    def test_what_is_cut_off_is_still_found(self, text):
        a = text(12)
        for length in (0, 4, 6, 8):
            calls = [("open", 0, a), ("commit", 0), ("truncate", 0, length)]
            assert_found(12, 9, 4, *calls, ("open", 1, [*a, 1]))

    def test_a_fork_goes_its_own_way(self, text):
        calls = [("open", 0, text(10)), ("commit", 0), ("fork", 0, 1), ("truncate", 1, 6)]
        calls += [*step(1, text(3)), *step(0, text(3)), ("truncate", 0, 0), ("append", 0, text(1))]
        run(9, 4, *calls, ("close", 1))


@pytest.mark.group("anything")
@pytest.mark.parametrize(
    "examples, options",
    [
        (150, {}),
        (30, {"prefix_caching": False}),
        (30, {"hash_block": lambda before, tokens: sum(tokens) % 2, "strong": False}),
    ],
    ids=["as it is", "no prefix caching", "weak keys"],
)
def test_any_script(draw, examples, options):
    """Random scripts. The one in the message is as short as could be found."""
    play = lambda script: run(*script.sizes, *script.calls, **options)  # noqa: E731
    search(play, draw.seed(), examples)


@pytest.mark.cost("blocks")
def test_blocks_of_samples_behind_a_system_prompt(text, budget):
    """See paged_costs.Samples: blocks in use, summed over rounds."""
    script = samples(text, block_size=16)
    outcomes = run(200, 16, *script.calls)
    used = sum(200 - outcomes[end - 1].num_free for end in script.ends)
    beside = {"without sharing": script.alone}
    budget(max(used, script.ideal), script.ideal, unit="blocks", beside=beside)


@pytest.mark.cost("hashes")
def test_each_block_is_hashed_once(text, budget):
    """A request of 22 + 100 tokens, and one of 22 + 20 that finds 20: calls of hash_block.

    The ideal: one for each block that is found or published, and one for the first that is not
    found. Who makes all keys of a prompt at once and keeps them needs no more.
    """
    made, first = [], text(22)

    def key(before, tokens):
        made.append(tokens)
        return hash((before, tuple(tokens)))

    calls = [("open", 0, first), ("commit", 0)]
    calls += [call for _ in range(100) for call in step(0, text(1))]
    calls += [("open", 1, [*first[:20], 1, 2]), ("commit", 1)]
    calls += [call for _ in range(20) for call in step(1, text(1))]
    run(60, 4, *calls, hash_block=key)
    anew = [*range(1, 122 // 4 + 1), *range(1, 42 // 4 + 1)]
    ideal = len(anew) + 1
    beside = {"each time from the first block on": sum(anew)}
    budget(max(len(made), ideal), ideal, unit="calls", beside=beside)


@pytest.mark.cost("work")
def test_a_token_more_costs_the_same_at_any_length(text, budget):
    """16 times `append` and `commit` of a token, a block in all: lines of Python that execute.

    The ideal: behind 4000 tokens as many as behind 40, give or take one a call.
    """
    lines = {}
    for length in (40, 4000):
        cache = PagedCache(300, 16)
        cache.open(0, text(length))
        cache.commit(0, length)
        cache.append(0, text(16))  # who publishes after `commit` has done so now
        cache.commit(0, 16)
        seen = []
        for token in text(16):
            seen += [count_lines(cache.append, 0, [token]), count_lines(cache.commit, 0, 1)]
        lines[length] = sum(call.count for call in seen)
        assert_equal(cache.computed(0), length + 32, what="computed")
        assert lines[length] >= 2 * 16, "lines were executed that the counter has not seen"
    ideal = lines[40] + 2 * 16
    budget(max(lines[4000], ideal), ideal, unit="lines", beside={"at 40": lines[40]})
