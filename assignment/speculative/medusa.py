"""Medusa: the target guesses its own next tokens, by a few more heads on its last hidden state.

The target's head says what comes next. A Medusa head says what comes two, three, … places on,
without knowing what stands between. So there are a few guesses for each place, and the likeliest
combinations of them form a tree: branches that share their beginnings. One call of the target reads
the whole tree, each branch as if it were alone, and the longest right beginning is kept.

Cai et al., 2024, arXiv:2401.10774. What is accepted here is what plain decoding gives; the paper's
typical acceptance, which is not, is `accept_typical`.

A tree of T nodes is `parents`: node 0 is the root, parents[0] = −1, and parents[i] < i. The root is
the newest token of the sequence, which is known but has not been fed.

Axes: T nodes of a tree, M heads, B sequences, D hidden size, V vocabulary.
"""

from collections.abc import Callable, Collection, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models.blocks import Linear
from assignment.provided.speculative import NO_TOKEN, TreePast

from ..attention.generate import next_token_probs, sample

Choice = tuple[int, ...]
"""A node, by the ranks on the way to it: (0, 2) is, below head 0's best guess, head 1's third."""


class MedusaHeads(nn.Module):
    """M heads on a target's hidden state: logits = out(h + silu(W h)), each with its W and its out.

    h is what the target's own head reads: the last block's result after the final norm. Of a Llama
    that is model.norm(model.hidden(tokens)).
    """

    def __init__(self, num_heads: int, head_weight: Float[Tensor, "V D"]):
        """W starts at 0 and out as a copy of the target's head: at first each says what it says.

        The weights are blocks.<m>.weight (W, [D, D]) and outputs.<m>.weight (out, [V, D]), in
        head_weight's dtype. There is no bias.
        """
        super().__init__()
        vocab_size, d_model = head_weight.shape
        self.blocks = nn.ModuleList(Linear(d_model, d_model) for _ in range(num_heads))
        self.outputs = nn.ModuleList(Linear(d_model, vocab_size) for _ in range(num_heads))
        self.to(head_weight.dtype)
        raise NotImplementedError

    def forward(self, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... M V"]:
        """The logits of each head. About 4 lines."""
        raise NotImplementedError


def medusa_loss(
    head_logits: Float[Tensor, "B T M V"], tokens: Int[Tensor, "B T"], is_real: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """What the heads are trained on: Σₘ 0.8ᵐ · (mean of −log p of what head m is to say), in nats.

    The target's own head says at place t what token t + 1 is; head m, from 0, what token t + 2 + m
    is. A head's mean is over all places of the batch where that token is real; a head without any
    counts 0. (The paper counts heads from 1, which makes no difference but a factor.)

    is_real is False where `tokens` is padding, on the right, of any value. About 8 lines.
    """
    raise NotImplementedError


def tree_parents(choices: Sequence[Choice]) -> list[int]:
    """The tree of `choices`: node 1 + i is choices[i], below the root.

    Raises:
        ValueError: a choice is empty, has a negative rank, comes twice, or does not come after its
            parent (the choice without its last rank; of one rank, the root).

    Hint: a dictionary from choices to nodes. About 8 lines.
    """
    raise NotImplementedError


def tree_tokens(
    root: int, head_logits: Float[Tensor, "M V"], choices: Sequence[Choice]
) -> Int[Tensor, "T"]:
    """The tokens of the nodes, int64: `root`, then the guess of each choice.

    Choice (r₀, …, r_d) holds the token of rank r_d in head d's logits: rank 0 is the most probable
    token, and of equal ones the lower id comes first. A rank of V or more is padding: NO_TOKEN.

    Raises:
        ValueError: a choice has more ranks than there are heads.

    Hint: `stable=True`. About 8 lines.
    """
    raise NotImplementedError


def tree_depths(parents: list[int]) -> Int[Tensor, "T"]:
    """How many steps each node is below the root, int64; 0 for the root. About 4 lines."""
    raise NotImplementedError


def tree_mask(parents: list[int], length: int) -> Bool[Tensor, "T S"]:
    """Who sees whom when a tree is fed to a past of `length` tokens: S = length + T.

    mask[i, s] is True where node i sees slot s: all of the past, its ancestors, and itself.
    A prompt is a tree without branches. About 5 lines.
    """
    raise NotImplementedError


def accept_path(
    tokens: Int[Tensor, "T"],
    parents: list[int],
    probs: Float[Tensor, "T V"],
    uniforms: Float[Tensor, "depths"],
) -> tuple[list[int], int]:
    """The accepted path of a tree and the token after it, without loss.

    At each node, the root first, the target draws its own next token: at a node of depth d that is
    x = sample(probs[node], uniforms[d]). If a child of the node holds x, go there; if not, x is the
    token after the path. A token takes one uniform, guessed or not: this is plain decoding with the
    same uniforms, and the tree only says how far its steps are known already.

    Args:
        tokens: different ones for the children of a node. NO_TOKEN is padding, never accepted.
        probs: row i is the target's distribution after node i. Rows of padding hold anything.
        uniforms: at least one for each depth, 0 … the largest.

    Returns:
        (path, token): the accepted nodes, root first. About 6 lines.
    """
    raise NotImplementedError


def accept_typical(
    tokens: Int[Tensor, "T"],
    parents: list[int],
    probs: Float[Tensor, "T V"],
    uniform: float,
    epsilon: float = 0.09,
    delta: float = 0.3,
) -> tuple[list[int], int]:
    """The accepted path by typical acceptance, and the token after it. Not lossless.

    A node is good enough if, with q the target's distribution after its parent,

        q(its token) > min(ε, δ · exp(−H(q))),    H(q) = −Σ q log q in nats, where 0 log 0 = 0

    (section 2.3.1 of the paper): where the target is unsure, less probable tokens pass. A node is
    accepted if it is good enough and its parent is accepted; the root is. Of the accepted paths the
    longest wins; of equally long ones that with the largest product of q(token) over its nodes (of
    equal products, any). The token after it is sample(probs[its last node], uniform).

    Args and returns as `accept_path`, but for the one uniform. About 15 lines.
    """
    raise NotImplementedError


def medusa_generate(
    past: TreePast,
    heads: Callable[[Tensor], Tensor],
    prompt: list[int],
    max_new_tokens: int,
    choices: Sequence[Choice],
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    uniforms: Float[Tensor, "max_new"] | None = None,
    stop_tokens: Collection[int] = (),
) -> list[int]:
    """Continue a prompt by trees: the very tokens that `generate` gives, in fewer calls.

    The first call of `past.feed` feeds the prompt, at positions 0, 1, …; its last token gives the
    first new one. Each later call feeds a tree: the newest token, and below it what the heads guess
    at the token before. A node's position is where its path would stand in the sequence.
    `accept_path` gives the next new tokens. Of the slots fed, `past.keep` keeps the accepted path:
    before each call the past holds the sequence but its newest token, and nothing else.

    An answer ends with max_new_tokens new tokens, or its first token in `stop_tokens` (which stays;
    what follows is dropped); then there is no call any more. A tree has only the choices that can
    be used: when n tokens are missing, those of at most n − 1 ranks.

    Args:
        past: of the target, nothing fed yet. Where a node is padding, feed it any valid token.
        heads: heads(hidden [..., D], as `past.feed` returns it) -> logits [..., M, V]. For
            `MedusaHeads` on a Llama: lambda hidden: heads(model.norm(hidden)).
        temperature, top_k, top_p: of the target; see `next_token_probs`.
        uniforms: new token i uses uniforms[i]. Needed when temperature > 0, else unused.

    Raises:
        ValueError: an empty prompt, a negative max_new_tokens, uniforms missing or of another
            shape, what `next_token_probs` refuses, or what `tree_parents` and `tree_tokens` refuse
            of the choices that are used.

    About 22 lines.
    """
    _check_request(prompt, max_new_tokens, temperature, uniforms)
    raise NotImplementedError


def _check_request(prompt: list[int], wanted: int, temperature: float, uniforms: Tensor | None):
    if not prompt:
        raise ValueError("prompt is empty, expected at least one token")
    if wanted < 0:
        raise ValueError(f"max_new_tokens is {wanted}, expected 0 or more")
    shape = None if uniforms is None else list(uniforms.shape)
    if shape != [wanted] and (temperature > 0 or shape is not None):
        raise ValueError(f"uniforms: expected [{wanted}], got {shape}")
