"""Questions 7 to 10: rounding, drafts, blocks and batches."""

from .numbers import Blocks, Drafting, Rounding, Rows
from .question import Ask, Question, Section

PROBABILITIES = "a list of three"
CODES = "a list of 8 whole numbers"


def about_rounding(name: str, n: Rounding) -> Question:
    values = ", ".join(f"{value:g}" for value in n.values)
    largest = n.values[n.place]
    text = (
        f"Eight numbers are stored in int8 by their largest magnitude (absmax):  {values}  "
        "A code is round(127 · x / absmax), and stands for code · absmax / 127. Then "
        f"{largest:g} becomes {n.outlier}, and all eight are stored anew. Besides: AWQ multiplies "
        f"the weights of an important input channel by s = {n.scale:g} before rounding and "
        f"divides that channel's activation by s; the step of the group grows by Δ'/Δ = "
        f"{n.growth:g}."
    )
    asks = (
        Ask("scale", "127 / absmax of the eight numbers", "a number"),
        Ask("codes", "their codes", CODES),
        Ask("error", f"largest error of the seven others than {largest:g}", "a number"),
        Ask("outlier_codes", f"the codes with {n.outlier}", CODES),
        Ask("outlier_error", "largest error of the same seven then", "a number"),
        Ask("fp8", "largest number in FP8, E4M3 as an H100 has it (E4M3FN)", "a number, exact"),
        Ask("threshold", "magnitude from which LLM.int8() takes a column apart", "a number"),
        Ask("apart", "whose columns those are", "weights or activations"),
        Ask("awq", "AWQ's error of that channel, as a share of the one before", "a share or %"),
        Ask("kept", "how many weights AWQ keeps in 16 bits", "weights, exact"),
    )
    source = Section("Quantisation", "compression")
    return Question(name, "Eight bits and an outlier", text, asks, source)


def about_drafts(name: str, n: Drafting) -> Question:
    text = (
        "Tokens A, B, C have the probabilities "
        f"{_three(n.draft)} in the draft model and {_three(n.target)} in the target model. The "
        "draft model has drawn A. Besides: with another pair of models each draft token is "
        f"accepted with probability {n.acceptance:g}, independently; {n.num_draft} are drafted in "
        f"a round. Drafting one costs {n.cost:g} of a target pass; the pass that verifies them all "
        "costs as much as one target pass."
    )
    asks = (
        Ask("accept", "probability that this A is accepted", "a share or %"),
        Ask("residual", "probabilities of A, B, C if it is rejected", PROBABILITIES),
        Ask(
            "acceptance", "probability that a token drawn by the draft is accepted", "a share or %"
        ),
        Ask(
            "output", "probabilities of A, B, C of the token that comes out, over all that the "
            "draft may draw", PROBABILITIES,
        ),
        Ask("tokens", "tokens that a round of the other pair brings on average", "tokens"),
        Ask("speedup", "how many times faster it is than the target alone", "a factor"),
        Ask("most", "the most tokens that a round can bring", "tokens, exact"),
    )  # fmt: skip
    return Question(name, "Drafts", text, asks, Section("Verification", "speculative"))


def about_blocks(name: str, n: Blocks) -> Question:
    lengths = "/".join(map(str, n.lengths))
    text = (
        f"A paged cache has blocks of {n.block} tokens. One prompt of {n.prompt} tokens gets "
        f"{n.samples} samples of {n.new} tokens each; at the end the cache holds all these tokens. "
        f"Besides: a static batch of four requests generates {lengths} tokens, and each step "
        "computes all four rows until the longest is done."
    )
    asks = (
        Ask("shared", "blocks in use if samples share and copy on write", "blocks, exact"),
        Ask("apart", "blocks in use if each sample has its own", "blocks, exact"),
        Ask(
            "wasted", "the most slots that a sequence's last block can leave unused", "slots, exact"
        ),
        Ask("useful", "share of the static batch's row-steps that make a token", "a share or %"),
    )
    source = Section("The paged cache", "serving")
    return Question(name, "Blocks and a static batch", text, asks, source)


def about_rows(name: str, n: Rows) -> Question:
    first, second, third = n.lengths
    text = (
        f"Three requests bring {first}, {second} and {third} tokens into one pass; none has tokens "
        "from before. One server flattens them (selective batching), another pads all to the "
        "longest. Scores are counted for one head, whole squares, without a mask."
    )
    asks = (
        Ask("rows", "rows that a linear layer computes when flattened", "rows, exact"),
        Ask("padded_rows", "rows that it computes when padded", "rows, exact"),
        Ask("scores", "attention scores, request by request", "scores, exact"),
        Ask("padded_scores", "attention scores when padded", "scores, exact"),
        Ask("split", "the one operation of a layer that is not flattened", "one word"),
    )
    return Question(name, "One pass for all", text, asks, Section("The engine", "serving"))


def _three(tenths: tuple[int, int, int]) -> str:
    return "(" + ", ".join(f"{tenth / 10:g}" for tenth in tenths) + ")"
