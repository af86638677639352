"""The stories' tokenizer: every word and mark of a story is one token, anything else is bytes.

    tokenizer = load_tokenizer()
    tokenizer.decode(tokenizer.encode("Mara was a baker."))

So the grammar's probability of the next word is that of the next token, and a model's perplexity
can be compared with it. A word has a token for itself with a blank before it, and another without
where it begins a text or a line. What is in no story is spelled in bytes: no text is unknown.

`python -m assignment.provided.data.tokenizer` writes tokenizer.json anew.
"""

import sys
from pathlib import Path

from .corpus import story_texts
from .stories import END

BEGIN = "<|begin|>"  # before every story: what a model is given to start one
FILE = Path(__file__).with_name("tokenizer.json")
SEEN = 20_000  # stories whose words are in the vocabulary; all words come many times in these


class StoryTokenizer:
    """Text to token ids and back.

    Attributes:
        vocab_size: V.
        begin: the id that comes before a story.
        stop_tokens: the id that comes behind it, as a set for `generate`.
    """

    def __init__(self, path: Path = FILE):
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ImportError(
                f"the stories' tokenizer needs the package {error.name}: "
                "install the extra, `make setup EXTRAS=real`"
            ) from error
        self._tokenizer = Tokenizer.from_file(str(path))
        self.vocab_size = self._tokenizer.get_vocab_size()
        self.begin = self._tokenizer.token_to_id(BEGIN)
        self.stop_tokens = {self._tokenizer.token_to_id(END)}

    def encode(self, text: str) -> list[int]:
        """The ids of a text that begins a story or a line; BEGIN and END may stand in it."""
        return self._tokenizer.encode(text).ids

    def document(self, story: str) -> list[int]:
        """The ids of a whole story, from BEGIN to END."""
        return self.encode(BEGIN + story + END)

    def decode(self, tokens: list[int], skip_special_tokens: bool = True) -> str:
        """The text; for a character whose last bytes are still to come a replacement character."""
        return self._tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)


def load_tokenizer() -> StoryTokenizer:
    """The tokenizer of the toy models.

    Raises:
        ImportError: if `tokenizers` is not installed; the message says how to get it.
    """
    return StoryTokenizer()


def build(path: Path = FILE) -> None:
    """Write the tokenizer's file. The same words give the same file."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    special = [BEGIN, END]
    pieces = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?\p{L}+| ?[^\s\p{L}]|\s"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    words = {
        piece for text in story_texts("train", SEEN) for piece, _ in pieces.pre_tokenize_str(text)
    }
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = [*special, *alphabet, *sorted(words - set(alphabet))]
    # A byte-pair model without merges: a piece in the vocabulary is a token, others go by bytes.
    model = models.BPE({piece: i for i, piece in enumerate(vocabulary)}, [], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer.save(str(path))


if __name__ == "__main__":
    build()
    print(f"{FILE.name}: {StoryTokenizer().vocab_size} tokens", file=sys.stderr)
