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
        # BEGIN SOLUTION
        next_token_probs(torch.zeros(1, 1), temperature, top_k, top_p)  # refuses what it refuses
        self._reader, self._filters = _Reader(session), (temperature, top_k, top_p)
        # END SOLUTION

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
        # BEGIN SOLUTION
        longer, probs = [list(sequence) for sequence in sequences], []
        for i in range(max(most)):
            drafts = [i < count for count in most]
            logits = self._reader.read(longer, [int(is_drafting) for is_drafting in drafts], 1)
            probs.append(next_token_probs(logits[:, 0], *self._filters))
            for row, token in enumerate(sample(probs[i], uniforms[:, i]).tolist()):
                if drafts[row]:
                    longer[row].append(token)

        drafted = [new[len(old) :] for new, old in zip(longer, sequences, strict=True)]
        width = uniforms.shape[1]
        draft = Draft.of(drafted, width)
        if not probs:
            return draft
        padded = F.pad(torch.stack(probs, dim=1), (0, 0, 0, width - len(probs)))
        return Draft(draft.tokens, draft.num_draft, padded)
        # END SOLUTION


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
    # BEGIN SOLUTION
    next_token_probs(torch.zeros(1, 1), temperature, top_k, top_p)  # refuses, before all else
    if uniforms is None:
        uniforms = torch.zeros(len(prompts), max_new_tokens, 2 * num_draft + 1)
    sequences, reader = [list(prompt) for prompt in prompts], _Reader(target)
    left = [_limit(prompt, max_new_tokens, max_length) for prompt in prompts]

    for numbers in uniforms.unbind(dim=1):  # every round gives each answer one token at least
        if not any(left):
            break
        most = [min(num_draft, max(count - 1, 0)) for count in left]
        draft = propose([list(tokens) for tokens in sequences], most, numbers[:, :num_draft])

        drafted = [
            row[:count]
            for row, count in zip(draft.tokens.tolist(), draft.num_draft.tolist(), strict=True)
        ]
        longer = [old + new for old, new in zip(sequences, drafted, strict=True)]
        to_judge = [len(new) + 1 if n else 0 for new, n in zip(drafted, left, strict=True)]
        logits = reader.read(longer, to_judge, num_draft + 1)
        probs = next_token_probs(logits.flatten(0, 1), temperature, top_k, top_p)

        verified = verify(draft, probs.reshape(logits.shape), numbers[:, num_draft:])
        for row, tokens in enumerate(verified.tolist()):
            if left[row]:
                new = _up_to_stop([token for token in tokens if token != NO_TOKEN], stop_tokens)
                sequences[row] += new
                left[row] = 0 if new[-1] in stop_tokens else left[row] - len(new)
    return [tokens[len(prompt) :] for tokens, prompt in zip(sequences, prompts, strict=True)]
    # END SOLUTION


# BEGIN SOLUTION
class _Reader:
    """A session that is asked about sequences, and goes back and forth by itself."""

    def __init__(self, session: Session):
        self._session = session
        self._fed: list[list[int]] = []

    def read(
        self, sequences: list[list[int]], num_last: list[int], width: int
    ) -> Float[Tensor, "B width V"]:
        """In its first num_last[b] columns, the logits after the last num_last[b] tokens of each
        sequence. Where that is 0 the sequence is left alone. Other columns mean nothing."""
        self._fed = self._fed or [[] for _ in sequences]
        wanted = [s if n else fed for s, n, fed in zip(sequences, num_last, self._fed, strict=True)]
        kept = [
            min(_common(fed, tokens), len(tokens) - count)
            for fed, tokens, count in zip(self._fed, wanted, num_last, strict=True)
        ]
        self._session.truncate(torch.tensor(kept))
        new = [tokens[length:] for tokens, length in zip(wanted, kept, strict=True)]
        num_new = torch.tensor([len(tokens) for tokens in new])
        logits = self._session(_padded(new), num_new)
        self._fed = [list(tokens) for tokens in wanted]

        columns = (num_new - torch.tensor(num_last))[:, None] + torch.arange(width)
        return logits[torch.arange(len(new))[:, None], columns.clamp(max=logits.shape[1] - 1)]


def _common(first: list[int], second: list[int]) -> int:
    """How many tokens two sequences have in common from their start."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def _padded(rows: list[list[int]]) -> Int[Tensor, "B T"]:
    width = max(map(len, rows))
    return torch.tensor([row + [0] * (width - len(row)) for row in rows], dtype=torch.int64)


def _up_to_stop(tokens: list[int], stop_tokens: Collection[int]) -> list[int]:
    stops = [i for i, token in enumerate(tokens) if token in stop_tokens]
    return tokens[: stops[0] + 1] if stops else tokens


def _limit(prompt: list[int], max_new_tokens: int, max_length: int | None) -> int:
    """How many new tokens this prompt may get."""
    return max_new_tokens if max_length is None else min(max_new_tokens, max_length - len(prompt))


# END SOLUTION


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
