"""Answers in words: what each is also called."""

from __future__ import annotations

from tests.accounting.review.quantities import LONGEST, Unreadable
from tests.accounting.review.spelling import plain

MEANINGS = {
    "compute": ("compute limited", "compute bound", "flops", "flop", "arithmetic", "computation",
                "the chip's compute", "limited by compute", "bound by compute"),
    "memory": ("memory limited", "memory bound", "memory bandwidth", "bandwidth", "bytes",
               "bandwidth bound", "bandwidth limited", "limited by memory", "bound by memory",
               "the memory", "the memory bandwidth"),
    "yes": ("y", "true", "it does", "yes it does"),
    "no": ("n", "false", "it does not", "it doesn't", "no it does not", "no it doesn't"),
    "associative recall": ("mqar", "multi query associative recall", "recall",
                           "key value recall", "associative lookup",
                           "associative recall task", "the associative recall task"),
    "pairs": ("pair", "number of pairs", "how many", "how many pairs", "how many pairs there are",
              "the pairs", "count", "the number of pairs"),
    "distance": ("how far", "how far back", "how far back they are", "distances", "the distance"),
    "activations": ("activation", "activation columns", "inputs", "input", "x", "features",
                    "activation features", "the activations"),
    "weights": ("weight", "weight columns", "w", "the weights"),
    "attention": ("self attention", "attention core", "the attention", "attention scores",
                  "scaled dot product attention", "sdpa", "multi head attention", "mha"),
}  # fmt: skip


KNOWN = {plain(word): meaning for meaning, also in MEANINGS.items() for word in (meaning, *also)}


def meaning(value: object, choices: tuple[str, ...]) -> str:
    """Which of `choices` an answer says; its own words where it says none of them.

    Raises Unreadable.
    """
    if isinstance(value, bool) and "yes" in choices:
        return "yes" if value else "no"
    if not isinstance(value, str):
        raise Unreadable("a word is wanted, in quotes")
    if len(value) > LONGEST:
        raise Unreadable(f"it has {len(value):,} characters")
    said = KNOWN.get(plain(value), "")
    if said in choices:
        return said
    if len(choices) > 1:
        raise Unreadable(f"one of {', '.join(choices)} is wanted")
    return said or plain(value)
