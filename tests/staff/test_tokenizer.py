"""The stories' tokenizer: a token a word, any text comes back, and the file is what `build` writes.

Skipped without tokenizers (the extra `real`).
"""

import json
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assignment.provided.data import tokenizer as module
from assignment.provided.data.corpus import story_texts
from assignment.provided.data.stories import END, words_of
from assignment.provided.data.tokenizer import BEGIN, FILE, StoryTokenizer, build, load_tokenizer

pytest.importorskip("tokenizers", reason='needs tokenizers: pip install ".[real]"')
TOKENIZER = load_tokenizer()
BYTES = 256


def test_the_committed_file_is_the_built_one(tmp_path, monkeypatch):
    # 3,000 stories have all the words that 20,000 have
    monkeypatch.setattr(module, "SEEN", 3000)
    build(tmp_path / "tokenizer.json")
    built, committed = (json.loads(path.read_text()) for path in (tmp_path / FILE.name, FILE))
    assert built == committed, (
        "tokenizer.json is stale: did the grammar or its words change? Then "
        "`python -m assignment.provided.data.tokenizer` writes it anew, and all weights trained on "
        "stories must be trained anew."
    )


def test_the_vocabulary_is_small_and_its_ids_have_no_holes():
    vocabulary = json.loads(FILE.read_text())["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(TOKENIZER.vocab_size))
    assert 2 + BYTES < TOKENIZER.vocab_size <= 1024


def test_every_word_of_a_story_is_one_token():
    for text in story_texts("test", 400):
        words = words_of(text)
        begin, *tokens, end = TOKENIZER.document(text)
        assert (begin, {end}) == (TOKENIZER.begin, TOKENIZER.stop_tokens)
        assert len(tokens) == len(words)
        assert [TOKENIZER.decode([token]).strip(" ") for token in tokens] == words
        assert TOKENIZER.decode([begin, *tokens, end]) == text


def test_a_story_told_in_parts_has_the_same_tokens():
    # what a server does: the story as a prompt, then each token as it comes
    (text,) = story_texts("test", 1)
    story, *questions = text.split("\n")
    parts = [TOKENIZER.encode(part) for part in (story, *("\n" + line for line in questions))]
    tokens = TOKENIZER.encode(text)
    assert [token for part in parts for token in part] == tokens
    assert "".join(TOKENIZER.decode([token]) for token in tokens) == text


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text())
@example("  two  blanks and a tab\t\r\n\n ")
@example("naïve 東京 🦙 e\u0301 \u200b\u00a0\u2028\ufffd\0")
@example("snake_case, 3.14, Mara's <|end| > <|begin|>")
def test_any_text_comes_back(text):
    tokens = TOKENIZER.encode(text)
    assert all(0 <= token < TOKENIZER.vocab_size for token in tokens)
    assert TOKENIZER.decode(tokens, skip_special_tokens=False) == text


def test_what_is_in_no_story_is_spelled_in_bytes():
    tokens = TOKENIZER.encode("Zebra 東")
    assert len(tokens) == len("Zebra 東".encode())
    assert TOKENIZER.decode(tokens[:-1]) == "Zebra \ufffd"  # the character is not complete


def test_begin_and_end_are_tokens_and_left_out_of_text():
    tokens = TOKENIZER.encode(f"{BEGIN}Mara{END}")
    assert tokens == TOKENIZER.document("Mara")
    assert len(tokens) == 3 and TOKENIZER.begin not in TOKENIZER.stop_tokens
    assert TOKENIZER.decode(tokens) == "Mara"
    assert TOKENIZER.decode(tokens, skip_special_tokens=False) == f"{BEGIN}Mara{END}"


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="tokenizers.*make setup EXTRAS=real"):
        StoryTokenizer()
