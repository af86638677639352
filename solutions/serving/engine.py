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
    # BEGIN SOLUTION
    k_cache.view(-1, *k.shape[1:])[slots] = k
    v_cache.view(-1, *v.shape[1:])[slots] = v
    # END SOLUTION


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
    # BEGIN SOLUTION
    block_size = k_cache.shape[1]
    lengths = zip(query_lengths.tolist(), kv_lengths.tolist(), strict=True)
    outputs, first = [], 0
    for table, (new, length) in zip(block_tables, lengths, strict=True):
        keys, values = (  # [1, K, length, H]
            slots[None, :length].transpose(1, 2)
            for slots in _in_a_row(table[: -(-length // block_size)], k_cache, v_cache)
        )
        queries = q[None, first : first + new].transpose(1, 2)
        mask = None  # the newest token sees all
        if new > 1:
            mask = torch.arange(length - new, length)[:, None] >= torch.arange(length)
        out = scaled_dot_product_attention(queries, keys, values, mask, enable_gqa=True)
        outputs.append(out[0].transpose(0, 1))
        first += new
    return torch.cat(outputs)
    # END SOLUTION


# BEGIN SOLUTION
def _in_a_row(blocks: Int[Tensor, "W"], *caches: Tensor) -> list[Float[Tensor, "slots K H"]]:
    """The slots of these blocks, one after another. Blocks that lie so need no copy."""
    numbers = blocks.tolist()
    first, last = numbers[0], numbers[-1]
    if numbers == list(range(first, last + 1)):
        return [cache[first : last + 1].flatten(0, 1) for cache in caches]
    return [cache.index_select(0, blocks).flatten(0, 1) for cache in caches]


# END SOLUTION


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
        # BEGIN SOLUTION
        config = model.config
        self.cache = PagedCache(num_blocks, block_size, prefix_caching=prefix_caching)
        self.scheduler = Scheduler(self.cache, max_tokens, max_sequences)
        shape = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self._keys, self._values = (torch.zeros(shape, dtype=model.dtype) for _ in range(2))
        self._answers: dict[int, Answer] = {}
        self._forks: dict[int, list[int]] = {}  # which answers begin when this one begins
        # END SOLUTION

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
        # BEGIN SOLUTION
        vocab_size = self.model.config.vocab_size
        for token in prompt:
            if not 0 <= token < vocab_size:
                raise ValueError(f"prompt: token {token} is not in 0 … {vocab_size - 1}")
        first = len(self._answers)
        self.scheduler.add(first, prompt, sampling.max_new_tokens)
        for i in range(sampling.n):
            self._answers[first + i] = Answer(sampling, i, on_token)
        self._forks[first] = list(range(first + 1, first + sampling.n))
        return first
        # END SOLUTION

    def step(self) -> Step:
        """Compute one step, and return what it was: without chunks if there is nothing to do."""
        # BEGIN SOLUTION
        step = self.scheduler.schedule()
        if not step.chunks:
            return step
        for source, target in step.copies:
            self._keys[:, target] = self._keys[:, source]
            self._values[:, target] = self._values[:, source]
        logits = self._logits(step.chunks)

        sampled = [chunk.request for chunk in step.chunks if chunk.samples]
        forks = {number: self._forks.pop(number, []) for number in sampled}
        rows = {to: row for row, number in enumerate(sampled) for to in (number, *forks[number])}
        drawn = self._draw(rows, logits)
        self.scheduler.commit({number: drawn[number] for number in sampled})
        for number in sampled:
            for fork in forks[number]:
                if not self._answers[fork].finished:
                    self.scheduler.fork(number, fork, drawn[fork])
            if self._answers[number].finished:
                self.scheduler.remove(number)
        for number in rows:  # last: whoever is told may abort
            self._answers[number].tell()
        return step
        # END SOLUTION

    def run(self) -> None:
        """Step until there is nothing to do."""
        while self.step().chunks:
            pass

    def abort(self, request: int) -> None:
        """End all answers of a request that are not finished; what they have is kept.

        Raises:
            ValueError: there is no such request.
        """
        # BEGIN SOLUTION
        numbers = self._numbers(request)
        not_begun = self._forks.pop(request, [])
        for number in numbers:
            if not self._answers[number].finished:
                self._answers[number].finish_reason = "abort"
                if number not in not_begun:
                    self.scheduler.remove(number)
        # END SOLUTION

    def completions(self, request: int) -> list[Completion]:
        """The answers of a request, finished or not, in order; `request` is what `submit` returned.

        Raises:
            ValueError: there is no such request.
        """
        # BEGIN SOLUTION
        return [self._answers[number].completion for number in self._numbers(request)]
        # END SOLUTION

    # BEGIN SOLUTION
    def _numbers(self, request: int) -> range:
        if request not in self._answers or self._answers[request].sample != 0:
            raise ValueError(f"there is no request {request}")
        return range(request, request + self._answers[request].sampling.n)

    # The model.

    @torch.inference_mode()
    def _logits(self, chunks: Sequence[Chunk]) -> Float[Tensor, "S V"]:
        """All tokens of the step through the model, and the logits of those that are sampled."""
        tokens = [token for chunk in chunks for token in chunk.tokens]
        positions = [place for chunk in chunks for place in range(chunk.start, chunk.stop)]
        hidden = self.model.hidden(
            torch.tensor([tokens]), torch.tensor([positions]), self._attend(chunks)
        )
        ends = accumulate(len(chunk.tokens) for chunk in chunks)
        sampled = [end - 1 for end, chunk in zip(ends, chunks, strict=True) if chunk.samples]
        if not sampled:
            return hidden.new_empty(0, self.model.config.vocab_size)
        return self.model.logits(hidden[:, sampled])[0]

    def _attend(self, chunks: Sequence[Chunk]) -> Callable:
        """What the model calls in each layer: write the new keys and values, then read all."""
        size = self.cache.block_size
        tables = [self.cache.table(chunk.request) for chunk in chunks]
        slots = torch.tensor(
            [
                table[place // size] * size + place % size
                for table, chunk in zip(tables, chunks, strict=True)
                for place in range(chunk.start, chunk.stop)
            ]
        )
        tables = pad_sequence([torch.tensor(t) for t in tables], True, padding_value=NO_BLOCK)
        query_lengths = torch.tensor([len(chunk.tokens) for chunk in chunks])
        kv_lengths = torch.tensor([chunk.stop for chunk in chunks])

        def attend(layer, q, k, v):
            q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))  # [T, heads, H]
            k_cache, v_cache = self._keys[layer], self._values[layer]
            self.store(k, v, k_cache, v_cache, slots)
            out = self.attention(q, k_cache, v_cache, tables, query_lengths, kv_lengths)
            return out.transpose(0, 1)[None]

        return attend

    # The tokens.

    def _draw(self, rows: dict[int, int], logits: Float[Tensor, "S V"]) -> dict[int, int]:
        """Give each answer its next token, drawn from its row of the logits.

        Answers with the same filters are drawn at once.
        """
        groups: dict[tuple, list[int]] = defaultdict(list)
        for number in rows:
            sampling = self._answers[number].sampling
            groups[sampling.temperature, sampling.top_k, sampling.top_p].append(number)
        drawn: dict[int, int] = {}
        for filters, numbers in groups.items():
            own = logits[[rows[number] for number in numbers]]
            if filters[0] == 0:
                tokens = own.argmax(dim=-1)  # as `sample` would, without sums over the vocabulary
            else:
                uniforms = torch.tensor([self._answers[number].uniform for number in numbers])
                tokens = sample(next_token_probs(own, *filters), uniforms)
            drawn |= zip(numbers, tokens.tolist(), strict=True)
        for number, row in rows.items():
            self._answers[number].take(drawn[number], logits[row])
        return drawn

    # END SOLUTION
