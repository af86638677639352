"""The grammar over tokens, against its words. Skipped without `tokenizers`."""

import pytest
import torch

pytest.importorskip("tokenizers")

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.exact import ExactLaw
from assignment.provided.data.stories import END, log_probability, next_word_laws, words_of
from assignment.provided.data.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


def test_the_law_of_the_next_token_is_that_of_the_word_it_adds(tokenizer):
    exact = ExactLaw(tokenizer)
    for text in story_texts("test", 5):
        document = tokenizer.document(text)
        law = exact(document)
        assert law.shape == (len(document) - 1, tokenizer.vocab_size)
        for t in range(len(document) - 1):
            before = tokenizer.decode(document[: t + 1])
            *_, of_words = next_word_laws(words_of(before))
            tokens = law[t].nonzero().flatten().tolist()
            assert len(tokens) == len(of_words)
            for token in tokens:
                after = tokenizer.decode([*document[: t + 1], token])
                word = END if token in tokenizer.stop_tokens else words_of(after)[-1]
                assert len(words_of(after)) == t + (word != END)
                assert tokenizer.document(after)[:-1][-1] == token or word == END  # the usual token
                assert law[t, token] == pytest.approx(of_words[word], rel=1e-6)


def test_its_perplexity_is_the_grammars(tokenizer):
    for text in story_texts("test", 20):
        document = tokenizer.document(text)
        law = ExactLaw(tokenizer)(document)
        nats = law[torch.arange(len(law)), document[1:]].double().log().sum()
        assert float(nats) == pytest.approx(log_probability(text), rel=1e-5)
        assert law.sum(dim=1) == pytest.approx(1.0, abs=1e-5)


def test_what_is_not_a_whole_story_has_no_law(tokenizer):
    document = tokenizer.document(next(story_texts("test", 1)))
    exact = ExactLaw(tokenizer)
    begin, *words, end = document
    no_stories = [[*document, 5], document[:9] + document[10:], [*document[:9], end]]
    no_stories += [document[:-1], document[1:], [end, *words, begin], [begin, *words, begin]]
    no_stories += [[begin, begin, *words], [begin, end, *words]]
    with_a_blank = tokenizer.encode("x " + tokenizer.decode(document[1:2]))[-1]
    no_stories.append([begin, with_a_blank, *words[1:], end])
    for wrong in no_stories:
        with pytest.raises(ValueError, match="document: not (a|the tokens of a) story"):
            exact(wrong)
