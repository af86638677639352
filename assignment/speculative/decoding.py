"""Decoding in rounds: a draft proposes tokens, one call of the target checks them all.

Nobody knows which drafted tokens stay when the target is fed them, so it is fed all of them, and
what was rejected is cut off its cache later: a cache goes back by its length alone, and what comes
next overwrites. A draft model goes back too, and has to catch up as well: of a round in which all
was accepted it has never been fed the last drafted token, nor the bonus token.

Leviathan, Kalman, Matias, 2022, arXiv:2211.17192, algorithm 1. Put together from your own
`next_token_probs`, `sample` and `verify`.

Axes: B sequences, G the most drafted tokens of a sequence (γ), T tokens fed in one call,
V vocabulary.
"""

from collections.abc import Callable, Collection

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.models import Session
from assignment.provided.speculative import NO_TOKEN, Draft

from ..attention.generate import next_token_probs, sample
from .verification import verify

Propose = Callable[[list[list[int]], list[int], Tensor], Draft]
"""(sequences, most, uniforms [B, G]) -> a `Draft` of width G: what may come after each sequence.

At most most[b] ≤ G tokens of sequence b, and none where that is 0. `ModelDraft` is one.
"""


class ModelDraft:
    """Drafts with a small model that keeps a KV cache.

    A function of its arguments: whatever it was asked before, it drafts what a model would that
    reads `sequences` anew. What the cache holds only saves work: the model goes back to the longest
    beginning that it has been fed, and is fed the rest.

    Hint: the target has to be fed and taken back in the same way; write that once. About 50 lines
    with it.
    """

    def __init__(
        self,
        session: Session,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
    ):
        """
        Args:
            session: of the draft model, with a row for each sequence, nothing fed yet. Call it as
                session(tokens [B, T], num_tokens [B]); session.truncate(lengths [B]) goes back.
            temperature, top_k, top_p: see `next_token_probs`. The target may have others.

        Raises:
            ValueError: what `next_token_probs` refuses.
        """
        raise NotImplementedError

    def __call__(
        self, sequences: list[list[int]], most: list[int], uniforms: Float[Tensor, "B G"]
    ) -> Draft:
        """most[b] tokens after sequence b: token i is what `sample` draws with uniforms[b, i].

        The model is called once for each token of the longest draft, max(most) times, and each call
        feeds a sequence what its cache lacks. A sequence that has its most[b] tokens is fed no
        more: not the last of them, and nothing where most[b] = 0.

        Returns:
            A `Draft` of width G with num_draft = most. Its probabilities are those that the tokens
            were drawn from, after the filters; if nothing is drafted, there may be none.
        """
        raise NotImplementedError


def speculative_generate(
    target: Session,
    propose: Propose,
    prompts: list[list[int]],
    max_new_tokens: int,
    num_draft: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    uniforms: Float[Tensor, "B rounds width"] | None = None,
    stop_tokens: Collection[int] = (),
    max_length: int | None = None,
) -> list[list[int]]:
    """Continue every prompt, in rounds: a draft, one call of the target, `verify`.

    The new tokens of each prompt, by the same law as `attention.generate`, whatever is proposed; at
    temperature 0 its very tokens. An answer ends when it has max_new_tokens new tokens, or
    max_length tokens with its prompt, or with its first token of `stop_tokens` (which stays): what
    its last round gave after that is dropped.

    A round is for all answers that have not ended:
      1. `propose` is asked for at most min(num_draft, what the answer may still get − 1) tokens:
         one more comes from `verify` in any case. An answer that has ended may get none.
      2. The target goes back over what was rejected. Then it is fed, in one call, what its cache
         lacks of each sequence, and the drafted tokens behind it. In the first round that is the
         prompt; later it is the newest token, of which no cache knows yet. An answer that has ended
         is fed nothing.
      3. `verify` says which tokens come.

    So there are as many calls of the target as rounds, and no cache ever holds more than max_length
    tokens.

    Args:
        target: with a row for each prompt, nothing fed yet. Call it as target(tokens [B, T],
            num_tokens [B]); target.truncate(lengths [B]) goes back. The logits of padding mean
            nothing.
        propose: see `Propose`. It may draft fewer tokens than it was asked for. What it drafts are
            ids that the target has: they are fed to it before `verify` looks at them.
        num_draft: γ ≥ 0.
        temperature, top_k, top_p: of the target; see `next_token_probs`. A draft has its own.
        uniforms: [B, max_new_tokens, 2·num_draft + 1]. Round r of row b has uniforms[b, r]: the
            first num_draft are for `propose`, the others for `verify`. Needed when temperature > 0;
            without them, all are 0.

    Raises:
        ValueError: no prompts, an empty one or one longer than max_length, a negative
            max_new_tokens or num_draft, uniforms missing or of another shape, or what
            `next_token_probs` refuses. Nothing has been fed then.

    An answer does not depend on the others. Hint: remember what each row was fed. It is right as
    far as it equals the sequence, whatever `verify` said. About 35 lines.
    """
    _check_request(prompts, max_new_tokens, num_draft, temperature, uniforms, max_length)
    raise NotImplementedError


def _check_request(
    prompts: list[list[int]],
    max_new_tokens: int,
    num_draft: int,
    temperature: float,
    uniforms: Tensor | None,
    max_length: int | None,
) -> None:
    if not prompts:
        raise ValueError("prompts is empty, expected at least one prompt")
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompts[{row}] is empty, expected at least one token")
        if max_length is not None and len(prompt) > max_length:
            raise ValueError(f"prompts[{row}] has {len(prompt)} tokens, max_length is {max_length}")
    for name, value in (("max_new_tokens", max_new_tokens), ("num_draft", num_draft)):
        if value < 0:
            raise ValueError(f"{name} is {value}, expected 0 or more")
    expected = (len(prompts), max_new_tokens, 2 * num_draft + 1)
    if temperature > 0 and uniforms is None:
        raise ValueError(f"uniforms are missing: expected {list(expected)}, as temperature > 0")
    if uniforms is not None and tuple(uniforms.shape) != expected:
        raise ValueError(f"uniforms are {list(uniforms.shape)}, expected {list(expected)}")
