"""An inference engine: many requests in progress, one call of the model a step for all of them.

Selective batching (Orca, OSDI 2022): the tokens of a step, whatever requests they are of, are laid
one after another and go through the linear layers as rows of one matrix. Only attention looks at
each request by itself: at its own keys and values, in the blocks of a paged cache (PagedAttention,
arXiv:2309.06180). Put together from your own `paged_cache`, `scheduler` and `attention.generate`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from assignment.provided.models import Llama
from assignment.provided.serving import Answer, Chunk, Completion, ModelParts, Sampling, Step

from ..attention.generate import next_token_probs, sample
from .paged_cache import PagedCache
from .scheduler import Scheduler

NO_BLOCK = -1  # fills up the block tables of shorter requests


def store_kv(
    k: Float[Tensor, "T K H"],
    v: Float[Tensor, "T K H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    slots: Int[Tensor, "T"],
) -> None:
    """Write each token's key and value, in place, into its slot: block · block_size + offset.

    The caches are contiguous; no other slot changes. 2 lines.
    """
    raise NotImplementedError


def gather_attention(
    q: Float[Tensor, "T N H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    block_tables: Int[Tensor, "R W"],
    query_lengths: Int[Tensor, "R"],
    kv_lengths: Int[Tensor, "R"],
) -> Float[Tensor, "T N H"]:
    """Causal attention of the rows of a step, each over the keys and values of its own request.

    Args:
        q: first the queries of request 0, then those of request 1, …
        k_cache, v_cache: token i of a request lies in slot i % block_size of its block number
            i // block_size. Any slot that is no token's may hold anything, even NaN.
        block_tables: row r has the blocks of request r in order, at least ⌈kv_lengths[r] /
            block_size⌉ of them, then −1 up to the table's width.
        query_lengths: how many queries each request has, at least 1; their sum is T.
        kv_lengths: how many tokens it has in the cache, the new ones included. Its queries are of
            the last ones: query i stands at position kv_lengths[r] − query_lengths[r] + i.

    Returns:
        In the dtype of q. No argument is changed. Scale 1/√H, N query heads on K KV heads, scores
        and softmax in float32 at least, as in `attention.grouped_query`.

    The form in plain PyTorch: it copies a request's blocks next to each other, and attends as ever.
    A kernel reads them where they are. About 15 lines.
    """
    raise NotImplementedError


class Engine:
    """Serves requests, step by step.

    A request's tokens are those that it would get alone, whatever else is in the batch and however
    often it is preempted: token i of answer j is what `sample` draws with `sampling.uniform(j, i)`
    from `next_token_probs` of the logits after the tokens before it. (A batch may round otherwise;
    where that decides between two tokens, either is right.) `Answer` is given: it keeps the tokens
    of one answer and their log-probabilities, and knows when it is finished.

    Attributes: model; cache and scheduler, your `PagedCache` and `Scheduler`. Answers that are
    finished or aborted have left both. No graph is kept: the caches require no gradient.

    Size of a good answer: about 120 lines in all.
    """

    def __init__(
        self,
        model: Llama | ModelParts,
        num_blocks: int,
        block_size: int = 16,
        *,
        max_tokens: int = 256,
        max_sequences: int = 16,
        prefix_caching: bool = True,
        attention: Callable = gather_attention,
        store: Callable = store_kv,
    ):
        """
        Args:
            model: its `hidden` is called once a step, with tokens and positions [1, T] and
                `attend`, and then its `logits` once, with the rows [1, S, D] that are
                sampled from, if there are any.
            num_blocks, block_size, prefix_caching: of the paged cache; in each layer
                keys and values are [num_blocks, block_size, K, H] each, in the model's dtype.
            max_tokens, max_sequences: of the scheduler.
            attention, store: called as `gather_attention` and `store_kv` are, once each in a layer
                and step: `store` first, so that the new tokens see themselves.
        """
        self.model, self.attention, self.store = model, attention, store
        raise NotImplementedError

    def submit(
        self,
        prompt: Sequence[int],
        sampling: Sampling = Sampling(),  # noqa: B008
        on_token: Callable[[int, int], None] | None = None,
    ) -> int:
        """Queue a request; returns its number. In scheduler and cache its `sampling.n` answers have
        n numbers in a row, of which this is the first: the others begin as its forks, in the
        step that draws their first tokens.

        on_token(sample, token) is called at the end of the step in which an answer gets a token. It
        may submit and abort; of the tokens of its step it is told all the same.

        Raises:
            ValueError: a token is not one of the model's, or what `Scheduler.add` refuses. Nothing
                has changed then.
        """
        raise NotImplementedError

    def step(self) -> Step:
        """Compute one step, and return what it was: without chunks if there is nothing to do."""
        raise NotImplementedError

    def run(self) -> None:
        """Step until there is nothing to do."""
        while self.step().chunks:
            pass

    def abort(self, request: int) -> None:
        """End all answers of a request that are not finished; what they have is kept.

        Raises:
            ValueError: there is no such request.
        """
        raise NotImplementedError

    def completions(self, request: int) -> list[Completion]:
        """The answers of a request, finished or not, in order; `request` is what `submit` returned.

        Raises:
            ValueError: there is no such request.
        """
        raise NotImplementedError
