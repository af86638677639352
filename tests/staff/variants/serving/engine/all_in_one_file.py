"""A pool and a plan of its own, in one file; attention in float64, over copies of each KV head."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.models import Llama
from assignment.provided.serving import Chunk, Completion, ModelParts, Sampling, Step

from ..attention.generate import next_token_probs, sample


def store_kv(
    k: Float[Tensor, "T K H"],
    v: Float[Tensor, "T K H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    slots: Int[Tensor, "T"],
) -> None:
    for cache, new in ((k_cache, k), (v_cache, v)):
        cache.view(-1, cache.shape[2] * cache.shape[3]).index_copy_(0, slots, new.flatten(1))


def gather_attention(
    q: Float[Tensor, "T N H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    block_tables: Int[Tensor, "R W"],
    query_lengths: Int[Tensor, "R"],
    kv_lengths: Int[Tensor, "R"],
) -> Float[Tensor, "T N H"]:
    size, group = k_cache.shape[1], q.shape[1] // k_cache.shape[2]
    parts = []
    queries = q.double().split(query_lengths.tolist())
    for table, own, held in zip(block_tables, queries, kv_lengths.tolist(), strict=True):
        blocks = table[: -(-held // size)].tolist()
        keys, values = (
            torch.cat([cache[block] for block in blocks])[:held]
            .double()
            .repeat_interleave(group, 1)
            for cache in (k_cache, v_cache)
        )
        scores = torch.einsum("tnh,snh->nts", own, keys) / q.shape[2] ** 0.5
        future = torch.full((len(own), held), -torch.inf).triu(held - len(own) + 1)
        parts.append(torch.einsum("nts,snh->tnh", (scores + future).softmax(-1), values))
    return torch.cat(parts).to(q.dtype)


class Pool:
    """Blocks, found again by all tokens up to their end."""

    def __init__(self, num_blocks: int, size: int, keep: bool):
        self.num_blocks, self.size, self.keep = num_blocks, size, keep
        self.users = [0] * num_blocks
        self.idle = list(range(num_blocks))  # the next to be taken at the end
        self.named: dict[int, tuple[int, ...]] = {}
        self.by_name: dict[tuple[int, ...], int] = {}
        self.tables: dict[int, list[int]] = {}

    @property
    def num_free(self) -> int:
        return len(self.idle)

    def table(self, number: int) -> list[int]:
        return list(self.tables[number])

    def take(self) -> int:
        plain = [block for block in self.idle if block not in self.named]
        block = plain[-1] if plain else self.idle[0]  # or an IndexError
        self.idle.remove(block)
        self.by_name.pop(self.named.pop(block, None), None)
        self.users[block] = 1
        return block

    def hold(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.users[block] == 0:
                self.idle.remove(block)
            self.users[block] += 1

    def drop(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.idle.append(block)

    def known(self, tokens: list[int]) -> list[int]:
        ends = range(self.size, len(tokens), self.size)
        found = [self.by_name.get(tuple(tokens[:end])) for end in ends]
        return found[: found.index(None)] if None in found else found

    def name(self, block: int, tokens: tuple[int, ...]) -> None:
        if self.keep and tokens not in self.by_name and block not in self.named:
            self.by_name[tokens], self.named[block] = block, tokens


class Text:
    """A prompt and the answer behind it."""

    def __init__(self, order, number, prompt, sampling, sample_number, on_token):
        self.order, self.number, self.all = order, number, list(prompt)
        self.sampling, self.sample, self.on_token = sampling, sample_number, on_token
        self.new, self.logprobs, self.reason, self.unborn = [], [], None, []
        self.computed = self.placed = 0
        self.running = False

    def extend(self, logits: Tensor) -> None:
        asked = self.sampling
        probs = next_token_probs(logits[None], asked.temperature, asked.top_k, asked.top_p)
        uniform = torch.tensor([asked.uniform(self.sample, len(self.new))])
        token = sample(probs, uniform).tolist()[0]
        self.all.append(token)
        self.new.append(token)
        if asked.logprobs:
            self.logprobs.append(logits.softmax(0).log().tolist()[token])
        if len(self.new) == asked.max_new_tokens:
            self.reason = "length"
        if token in asked.stop_tokens:
            self.reason = "stop"


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
        self.cache = self.pool = Pool(num_blocks, block_size, prefix_caching)
        self.max_tokens, self.max_sequences = max_tokens, max_sequences
        c = model.config
        slot = (c.num_layers, num_blocks, block_size, c.num_kv_heads, c.head_dim)
        self.keys = torch.zeros(slot, dtype=model.dtype)
        self.values = torch.zeros(slot, dtype=model.dtype)
        self.texts: list[Text] = []
        self.live: list[Text] = []

    def submit(
        self,
        prompt: Sequence[int],
        sampling: Sampling = Sampling(),  # noqa: B008
        on_token: Callable[[int, int], None] | None = None,
    ) -> int:
        if not prompt or min(prompt) < 0 or max(prompt) >= self.model.config.vocab_size:
            raise ValueError("prompt")
        if len(prompt) + sampling.max_new_tokens - 1 > self.pool.num_blocks * self.pool.size:
            raise ValueError("too long for the cache")
        number = len(self.texts)
        n = range(sampling.n)
        group = [Text((number, i), number + i, prompt, sampling, i, on_token) for i in n]
        self.texts += group
        group[0].unborn = group[1:]
        self.live.append(group[0])
        return number

    def step(self) -> Step:
        self.live.sort(key=lambda text: text.order)
        chunks, copies, gone = [], [], []
        running = [text for text in self.live if text.running]
        ready = [t for t in running if t.computed == t.placed == len(t.all) - 1]
        for text in ready:
            while text.running:
                try:
                    copies += self.grow(text)
                    chunks.append(self.chunk(text, 1))
                    break
                except IndexError:
                    last = [t for t in self.live if t.running][-1]
                    self.stop(last)
                    gone.append(last.number)
        left = self.max_tokens - len(chunks)
        for text in running:
            if text.running and text not in ready and left:
                chunks.append(self.chunk(text, left))
                left -= len(chunks[-1].tokens)
        for text in [text for text in self.live if not text.running]:
            if gone or not left or not self.start(text):
                break
            chunks.append(self.chunk(text, left))
            left -= len(chunks[-1].tokens)
        waiting = tuple(text.number for text in self.live if not text.running)
        if chunks:
            self.compute(chunks, copies)
        return Step(tuple(chunks), tuple(copies), tuple(gone), waiting)

    def chunk(self, text: Text, most: int) -> Chunk:
        tokens = tuple(text.all[text.computed :][:most])
        whole = text.computed + len(tokens) == len(text.all)
        return Chunk(text.number, text.computed, tokens, whole)

    def grow(self, text: Text) -> list[tuple[int, int]]:
        table = self.pool.tables[text.number]
        begun, copies = text.placed < len(table) * self.pool.size, []
        if not begun or self.pool.users[table[-1]] > 1:
            new = self.pool.take()
            if begun:
                copies.append((table[-1], new))
                self.pool.drop([table.pop()])
            table.append(new)
        text.placed += 1
        return copies

    def start(self, text: Text) -> bool:
        if sum(t.running for t in self.live) == self.max_sequences:
            return False
        table = self.pool.known(text.all)
        missing = -(-len(text.all) // self.pool.size) - len(table)
        if self.pool.num_free - sum(self.pool.users[b] == 0 for b in table) < missing:
            return False
        self.pool.hold(table)
        text.computed, text.placed, text.running = len(table) * self.pool.size, len(text.all), True
        self.pool.tables[text.number] = table + [self.pool.take() for _ in range(missing)]
        return True

    def stop(self, text: Text) -> None:
        self.pool.drop(self.pool.tables.pop(text.number))
        text.computed, text.placed, text.running = 0, 0, False

    @torch.no_grad()
    def compute(self, chunks: list[Chunk], copies: list[tuple[int, int]]) -> None:
        for old, new in copies:
            self.keys[:, new], self.values[:, new] = self.keys[:, old], self.values[:, old]
        size, tables = self.pool.size, [self.pool.tables[c.request] for c in chunks]
        padded = torch.full((len(chunks), max(map(len, tables))), -1)
        slots, positions = [], []
        for row, (chunk, table) in enumerate(zip(chunks, tables, strict=True)):
            padded[row, : len(table)] = torch.tensor(table)
            positions += range(chunk.start, chunk.stop)
            slots += [table[p // size] * size + p % size for p in positions[-len(chunk.tokens) :]]
        new, held = (
            torch.tensor(n) for n in zip(*((len(c.tokens), c.stop) for c in chunks), strict=True)
        )

        def attend(layer, q, k, v):
            q, k, v = (x[0].movedim(1, 0) for x in (q, k, v))
            self.store(k, v, self.keys[layer], self.values[layer], torch.tensor(slots))
            read = self.attention(q, self.keys[layer], self.values[layer], padded, new, held)
            return read.movedim(0, 1)[None]

        tokens = torch.tensor([[token for c in chunks for token in c.tokens]])
        hidden = self.model.hidden(tokens, torch.tensor([positions]), attend)
        last = (new.cumsum(0) - 1)[torch.tensor([c.samples for c in chunks])]
        logits = iter(self.model.logits(hidden[:, last])[0] if len(last) else [])
        for chunk, table in zip(chunks, tables, strict=True):
            text = self.texts[chunk.request]
            for end in range(size, chunk.stop + 1, size):
                if end > chunk.start:
                    self.pool.name(table[end // size - 1], tuple(text.all[:end]))
            text.computed = chunk.stop
        texts = [self.texts[chunk.request] for chunk in chunks if chunk.samples]
        for told in [each for text in texts for each in self.answer(text, next(logits))]:
            if told.on_token:
                told.on_token(told.sample, told.new[-1])

    def answer(self, text: Text, logits: Tensor) -> list[Text]:
        born, text.unborn = text.unborn, []
        for each in (text, *born):
            each.extend(logits)
        for each in born:
            if each.reason is None:
                self.live.append(each)
                if sum(t.running for t in self.live) < self.max_sequences:
                    self.pool.tables[each.number] = self.pool.table(text.number)
                    self.pool.hold(self.pool.tables[each.number])
                    each.computed = each.placed = text.computed
                    each.running = True
        if text.reason:
            self.stop(text)
            self.live.remove(text)
        return [text, *born]

    def run(self) -> None:
        while self.live:
            self.step()

    def abort(self, request: int) -> None:
        for text in self.of(request):
            if text.running:
                self.stop(text)
            if text in self.live:
                self.live.remove(text)
            text.reason, text.unborn = text.reason or "abort", []

    def completions(self, request: int) -> list[Completion]:
        return [Completion(tuple(t.new), t.reason, tuple(t.logprobs)) for t in self.of(request)]

    def of(self, request: int) -> list[Text]:
        if not 0 <= request < len(self.texts) or self.texts[request].sample != 0:
            raise ValueError(request)
        n = self.texts[request].sampling.n
        return self.texts[request : request + n]
