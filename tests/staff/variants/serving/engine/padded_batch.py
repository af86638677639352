"""Attention over a padded batch, by einsum and a mask; the bookkeeping in columns, one a field."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.models import Llama
from assignment.provided.serving import Answer, Completion, ModelParts, Sampling, Step

from ..attention.generate import next_token_probs, sample
from .paged_cache import PagedCache
from .scheduler import Scheduler


def store_kv(
    k: Float[Tensor, "T K H"],
    v: Float[Tensor, "T K H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    slots: Int[Tensor, "T"],
) -> None:
    size = k_cache.shape[1]
    where = (slots // size, slots % size)
    k_cache.index_put_(where, k)
    v_cache.index_put_(where, v)


def gather_attention(
    q: Float[Tensor, "T N H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    block_tables: Int[Tensor, "R W"],
    query_lengths: Int[Tensor, "R"],
    kv_lengths: Int[Tensor, "R"],
) -> Float[Tensor, "T N H"]:
    num_rows, width = block_tables.shape
    size, num_kv_heads, head_dim = k_cache.shape[1:]
    wide = torch.promote_types(q.dtype, torch.float32)
    key = torch.arange(width * size)
    exists = key < kv_lengths[:, None]

    def padded(cache):
        rows = cache[block_tables.clamp(min=0)].reshape(num_rows, -1, num_kv_heads, head_dim)
        return rows.to(wide).masked_fill(~exists[:, :, None, None], 0.0)

    query = torch.arange(int(query_lengths.max()))
    is_query = query < query_lengths[:, None]
    queries = torch.zeros(*is_query.shape, *q.shape[1:], dtype=wide)
    queries[is_query] = q.to(wide)
    queries = queries.unflatten(2, (num_kv_heads, -1))
    scores = torch.einsum("rtkgh,rskh->rkgts", queries, padded(k_cache)) * head_dim**-0.5
    place = (kv_lengths - query_lengths)[:, None] + query
    visible = (key <= place[:, :, None]) & exists[:, None]
    scores = scores.masked_fill(~visible[:, None, None], -torch.inf)
    out = torch.einsum("rkgts,rskh->rtkgh", scores.softmax(-1), padded(v_cache))
    return out.flatten(2, 3)[is_query].to(q.dtype)


class Engine:
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
        self.model, self.attention, self.store = model, attention, store
        self.cache = PagedCache(num_blocks, block_size, prefix_caching=prefix_caching)
        self.scheduler = Scheduler(self.cache, max_tokens, max_sequences)
        c = model.config
        self.memory = torch.zeros(
            c.num_layers, 2, num_blocks, block_size, c.num_kv_heads, c.head_dim, dtype=model.dtype
        )
        self.answers: list[Answer] = []
        self.first: list[int] = []  # of each answer: the number of its request
        self.scheduled: set[int] = set()

    def submit(
        self,
        prompt: Sequence[int],
        sampling: Sampling = Sampling(),  # noqa: B008
        on_token: Callable[[int, int], None] | None = None,
    ) -> int:
        if any(t < 0 or t >= self.model.config.vocab_size for t in prompt):
            raise ValueError("a token is not in the vocabulary")
        number = len(self.answers)
        self.scheduler.add(number, prompt, sampling.max_new_tokens)
        self.scheduled.add(number)
        self.answers += [Answer(sampling, i, on_token) for i in range(sampling.n)]
        self.first += [number] * sampling.n
        return number

    def step(self) -> Step:
        step = self.scheduler.schedule()
        if step.chunks:
            for pair in step.copies:
                self.memory[:, :, pair[1]] = self.memory[:, :, pair[0]]
            with torch.no_grad():
                logits = self.forward(step)
            self.finish_step(logits)
        return step

    def forward(self, step: Step) -> dict[int, Tensor]:
        """The logits of each request that samples."""
        size = self.cache.block_size
        tokens, positions, slots, ends = [], [], [], {}
        for chunk in step.chunks:
            table = self.cache.table(chunk.request)
            tokens += chunk.tokens
            for position in range(chunk.start, chunk.stop):
                positions.append(position)
                slots.append(table[position // size] * size + position % size)
            if chunk.samples:
                ends[chunk.request] = len(tokens) - 1
        widest = max(len(self.cache.table(chunk.request)) for chunk in step.chunks)
        tables = torch.full((len(step.chunks), widest), -1)
        for row, chunk in enumerate(step.chunks):
            table = self.cache.table(chunk.request)
            tables[row, : len(table)] = torch.tensor(table)
        new = torch.tensor([len(chunk.tokens) for chunk in step.chunks])
        held = torch.tensor([chunk.stop for chunk in step.chunks])
        slots = torch.tensor(slots)

        def attend(layer, q, k, v):
            q, k, v = (x.squeeze(0).transpose(0, 1).contiguous() for x in (q, k, v))
            self.store(k, v, *self.memory[layer], slots)
            out = self.attention(q, *self.memory[layer], tables, new, held)
            return out.transpose(0, 1).unsqueeze(0)

        hidden = self.model.hidden(torch.tensor([tokens]), torch.tensor([positions]), attend)
        if not ends:
            return {}
        logits = self.model.logits(hidden[:, list(ends.values())])[0]
        return dict(zip(ends, logits, strict=True))

    def finish_step(self, logits: dict[int, Tensor]) -> None:
        new, told = {}, []
        for request, row in logits.items():
            group = [request]
            if not self.answers[request].tokens and self.answers[request].sample == 0:
                group = [i for i, first in enumerate(self.first) if first == request]
            for number in group:
                answer = self.answers[number]
                asked = answer.sampling
                probs = next_token_probs(row[None], asked.temperature, asked.top_k, asked.top_p)
                new[number] = int(sample(probs, torch.tensor([answer.uniform]))[0])
            for number in group:
                self.answers[number].take(new[number], row)
                told.append(self.answers[number])
        self.scheduler.commit({request: new[request] for request in logits})
        for number in new:
            if number not in self.scheduled and not self.answers[number].finished:
                self.scheduler.fork(self.first[number], number, new[number])
                self.scheduled.add(number)
        for number in new:
            if number in self.scheduled and self.answers[number].finished:
                self.leave(number)
        for answer in told:
            answer.tell()

    def leave(self, number: int) -> None:
        self.scheduler.remove(number)
        self.scheduled.remove(number)

    def run(self) -> None:
        while self.step().chunks:
            continue

    def group(self, request: int) -> list[int]:
        if request not in self.first:
            raise ValueError(f"nobody has submitted {request}")
        return [i for i, first in enumerate(self.first) if first == request]

    def abort(self, request: int) -> None:
        for number in self.group(request):
            if number in self.scheduled:
                self.leave(number)
            if self.answers[number].finish_reason is None:
                self.answers[number].finish_reason = "abort"

    def completions(self, request: int) -> list[Completion]:
        return [self.answers[number].completion for number in self.group(request)]
