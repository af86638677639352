"""The checker of stories finds each mistake, names its kind, and judges what follows rightly."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.stories import (
    END,
    KINDS,
    count_sentences,
    log_probability,
    text_of,
    violations,
    words_of,
)

OPENING = """\
Mara was a baker. Tom was her brother. Nina was their friend. Mara was in the kitchen. Tom was in \
the garden. Nina was in the kitchen, too. There was an old kite in the attic. Mara had a red lamp. \
Tom had three pears. """
EVENTS = """\
One morning, Mara gave Nina the lamp. She went to the garden and met Tom. Tom found two more pears \
and then had five pears. Mara looked for the kite, but the kite was in the attic. They laughed. \
Then Tom sold one of his pears and then had four pears. Nina went to the attic with the red lamp. \
She left the lamp in the attic."""
QUESTIONS = """
Who had the kite? Nobody had the kite.
Where was Tom? He was in the garden.
How many pears did Tom have? He had four pears."""
STORY = OPENING + EVENTS + QUESTIONS
BEFORE = "Nina went to the attic with"  # where a sentence more can stand; the last one was on Tom
WORDS = sorted({word for text in story_texts("test", 200) for word in words_of(text)})
quickly = settings(max_examples=250, deadline=None, derandomize=True)


def changed(*changes):
    """STORY with each (old, new) replaced; old stands in it once."""
    text = STORY
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def found(text):
    return [(violation.kind, violation.sentence) for violation in violations(text)]


def sentence_at(text, place):
    """The sentence around text[place]; a question with its answer."""
    sentences = re.finditer(r"[^.\n]+\.?", text)
    return [found[0].strip() for found in sentences if found.start() <= place][-1]


def test_a_genuine_story_has_no_violation():
    assert log_probability(STORY) > -1000
    assert violations(STORY) == []
    for text in story_texts("validation", 200):
        assert violations(text) == []


# One mistake: sentences that cannot stand before BEFORE

IMPOSSIBLE_SENTENCES = {
    "agreement": [
        "She yawned.",
        "They was happy.",
        "Tom were happy.",
        "Tom washed her hands.",
        "The kite was still on the attic.",
    ],
    "fact": [
        "Tom gave Mara the kite.",  # it lies elsewhere
        "Tom gave the lamp to Mara.",  # Nina has it
        "Tom took the kite.",
        "Tom picked up the lamp.",
        "Tom still had the lamp.",
        "Tom left the lamp in the garden.",
        "Tom went to the garden.",  # there he is
        "Tom went to the market.",  # of another setting
        "Tom wanted the sword.",
        "Tom looked for the blue kite, but the kite was in the attic.",
        "Tom looked for the kite, but the kite was in the hall.",
        "Tom looked for the kite, but Nina had the kite.",
        "Tom looked for the lamp, but the lamp was in the kitchen.",
        "Tom looked for the lamp, but Mara had the lamp.",
        "The kite was still in the hall.",
        "The lamp was still in the attic.",
        "Tom lost four of his pears and then had zero pears.",
        "Mara lost one of her pears and then had two pears.",
        "Vera yawned.",
    ],
    "form": [
        "Zebras sang loudly.",
        "Tom yawned twice.",
        "Then the rain began.",
        "tom yawned.",
        "One morning, Tom yawned.",
        "There was a red hat in the attic.",
        "Who had the kite? Nobody had the kite.",
    ],
}


@pytest.mark.parametrize("kind", IMPOSSIBLE_SENTENCES)
def test_an_impossible_sentence_is_found_and_not_believed(kind):
    for sentence in IMPOSSIBLE_SENTENCES[kind]:
        insertion = (BEFORE, f"{sentence} {BEFORE}")
        assert found(changed(insertion)) == [(kind, sentence)]
        later = changed(insertion, ("He had four", "He had nine"))
        second = ("answer", "How many pears did Tom have? He had nine pears.")
        assert found(later) == [(kind, sentence), second]


def test_what_of_a_wrong_sentence_is_taken_as_said():
    # whom "she" means next; and what was left no choice about: he goes, she gives, to Nina
    took = "Nina took the kite."
    assert found(changed((BEFORE, f"{took} She yawned. {BEFORE}"))) == [("fact", took)]
    went = "Tom went to the hall and met Nina."
    text = changed((BEFORE, f"{went} {BEFORE}"), ("He was in the garden", "He was in the hall"))
    assert found(text) == [("fact", went)]
    gave = "One morning, Mara gave the lamp to Vera."
    assert found(changed(("One morning, Mara gave Nina the lamp.", gave))) == [("fact", gave)]


# One mistake: words that are changed

MISTAKES = [
    ("agreement", "a baker", "an baker"),
    ("agreement", "her brother", "his brother"),
    ("agreement", "her brother", "her sister"),
    ("agreement", "their friend", "her friend"),
    ("agreement", "two more pears", "two more pear"),
    ("agreement", "one of his pears", "one of her pears"),
    ("agreement", "left the lamp in", "left the lamp on"),
    ("agreement", "She left the lamp", "He left the lamp"),
    ("agreement", "? He was in", "? She was in"),
    ("fact", "met Tom", "met Nina"),
    ("fact", "but the kite was in the attic", "but the kite was in the hall"),
    ("fact", "had five pears", "had six pears"),
    ("fact", "left the lamp in the attic", "left the lamp in the hall"),
    ("fact", "Who had the kite", "Who had the sword"),
    ("fact", "Where was Tom? He was", "Where was Vera? She was"),
    (
        "fact",
        "Where was Tom? He was in the garden",
        "Who had the kite? Nobody had the kite",
    ),  # again
    ("fact", "Where was Tom? He was in the garden", "What was Tom? He was a cook"),  # unsaid
    ("answer", "Nobody had the kite", "Nina had the kite"),
    ("answer", "He was in the garden", "He was in the attic"),
    ("answer", " Nobody had the kite.", ""),
    ("answer", " He was in the garden.", ""),
    ("form", "a baker", "a wizard"),
    ("form", "kitchen, too", "kitchen"),
    ("form", "garden. Nina", "garden, too. Nina"),
    ("form", "Who had the kite", "Who was the kite"),
    ("form", "Who had the kite? Nobody", "Nobody"),
    ("form", "\nWho", " Who"),
    ("form", "\nWhere", " Where"),
    ("form", "\nWhere", "\n\nWhere"),
    ("form", " Nina was their", "\nNina was their"),
]


@pytest.mark.parametrize(("kind", "old", "new"), MISTAKES, ids=lambda words: words.strip())
def test_a_mistake_is_found_and_what_follows_is_judged_rightly(kind, old, new):
    text = changed((old, new))
    first = (kind, sentence_at(text, STORY.index(old) + new.count("\n")))
    assert found(text) == [first]
    later = changed((old, new), ("He had four", "He had nine"))
    second = ("answer", "How many pears did Tom have? He had nine pears.")
    assert found(later) == [first, second]


def test_it_says_where_and_what_could_stand_there():
    text = changed(("red lamp. She left", "red lamp. He left"))
    (violation,) = violations(text)
    assert words_of(text)[violation.word :][:3] == ["He", "left", "the"]
    assert violation.expected[0] == "\n" and "She" in violation.expected
    assert str(violation).startswith('agreement: "He left the lamp in the attic.", expected ')


# Too much and too little


def test_a_text_that_is_cut_off_is_unfinished_and_else_right():
    words = words_of(STORY)
    for length in range(len(words)):
        text = text_of(words[:length])
        kinds = [violation.kind for violation in violations(text)]
        assert kinds == ([] if log_probability(text) > -1000 else ["unfinished"]), text


def test_one_event_or_question_too_many_is_one_violation():
    more = changed((BEFORE, f"Tom yawned. Tom smiled. {BEFORE}"))
    assert violations(more) == []
    eleventh = more.replace("attic.\nWho", "attic. The rain began.\nWho")
    assert found(eleventh) == [("form", "The rain began.")]
    more = STORY + "\nWhat was Mara? She was a baker.\nWhere was Nina? She was in the attic."
    assert violations(more) == []
    sixth = "Where was Mara? She was in the garden."
    assert found(f"{more}\n{sixth}") == [("form", sixth)]


FEW_EVENTS = "One day, Tom yawned. Mara smiled. She waited."
FEW_THINGS = OPENING.replace("Mara had a red lamp. ", "")


@pytest.mark.parametrize(
    ("story", "wrong"),
    [
        (OPENING + FEW_EVENTS, "Who had the kite? Nobody had the kite."),
        (FEW_THINGS + FEW_EVENTS + " Nina smiled.", "One day, Tom yawned."),
    ],
    ids=["questions", "events"],
)
def test_a_part_that_begins_too_soon_is_followed(story, wrong):
    text = story + QUESTIONS
    assert found(text.replace("had four", "had three")) == [("form", wrong)]
    second = ("answer", "How many pears did Tom have? He had four pears.")
    assert found(text) == [("form", wrong), second]


# Any text


def check_any(text):
    wrong = violations(text)
    assert (wrong == []) == (log_probability(text) > -float("inf"))
    kinds = [violation.kind for violation in wrong]
    assert set(kinds) <= set(KINDS) and "unfinished" not in kinds[:-1]
    places = [violation.word for violation in wrong]
    assert places == sorted(places) and places[-1:] <= [len(words_of(text))]
    sentences = [violation for violation in wrong if violation.kind != "unfinished"]
    assert len(sentences) <= count_sentences(text)


@quickly
@given(st.text(st.sampled_from("Mara was in the.,?\n<|end|>_1é²\r\t\0") | st.characters()))
def test_any_characters(text):
    check_any(text)


@quickly
@given(st.lists(st.sampled_from(["\n", ".", "?", *WORDS]), max_size=60))
def test_any_words(words):
    check_any(text_of(words))


@quickly
@given(
    st.integers(0, 30),
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.integers(0, 400),
            st.lists(st.sampled_from(["\n", ".", "?", END, *WORDS]), max_size=2),
        ),
        max_size=12,
    ),
)
def test_any_changes_of_a_story(number, edits):
    (text,) = story_texts("train", 1, number)
    words = words_of(text)
    for removed, place, added in edits:
        words[place : place + removed] = added
    check_any(" ".join(words))


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n", "\n\n\n", ".", "?", END, f"{STORY} {END}", STORY + "\n\n\n", "a b c", "One"],
)
def test_odd_texts(text):
    check_any(text)


def test_sentences_are_counted():
    assert count_sentences(STORY) == 9 + 8 + 3
    assert count_sentences("Foo. Bar") == 2
    assert count_sentences("\nFoo?\n\nBar? Baz.\n.") == 3
    assert count_sentences("") == 0


@pytest.mark.parametrize("unit", ["\n", ". ", "Tom ", "Tom was. ", "Who had?\n", STORY + "\n"])
def test_a_very_long_text_comes_to_an_end(unit):
    # what is quadratic in 20,000 words takes minutes
    check_any(unit * (20_000 // len(words_of(unit))))


def test_a_very_long_shuffled_text_comes_to_an_end():
    words = words_of(" ".join(story_texts("test", 150)))
    random.Random(0).shuffle(words)
    check_any(text_of(words))
