"""Each answer is an object that goes from state to state; attention head by head, slot by slot."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.models import Llama
from assignment.provided.serving import Completion, ModelParts, Sampling, Step

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
    for row, slot in enumerate(slots.tolist()):
        block, offset = divmod(slot, k_cache.shape[1])
        k_cache[block, offset] = k[row]
        v_cache[block, offset] = v[row]


def gather_attention(
    q: Float[Tensor, "T N H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    block_tables: Int[Tensor, "R W"],
    query_lengths: Int[Tensor, "R"],
    kv_lengths: Int[Tensor, "R"],
) -> Float[Tensor, "T N H"]:
    num_heads, head_dim = q.shape[1:]
    size, num_kv_heads = k_cache.shape[1:3]
    out, row = torch.empty_like(q), 0
    for table, new, held in zip(block_tables, query_lengths, kv_lengths, strict=True):
        place = torch.arange(int(held))
        keys = k_cache[table[place // size], place % size].double()
        values = v_cache[table[place // size], place % size].double()
        for seen in range(int(held) - int(new) + 1, int(held) + 1):
            for head in range(num_heads):
                kv_head = head * num_kv_heads // num_heads
                scores = keys[:seen, kv_head] @ q[row, head].double() / math.sqrt(head_dim)
                out[row, head] = (scores.softmax(dim=0) @ values[:seen, kv_head]).to(q.dtype)
            row += 1
    return out


class State(Enum):
    QUEUED = 0  # in the scheduler, no token yet
    UNBORN = 1  # waits for the first answer's first token
    SPEAKING = 2
    OVER = 3


@dataclass
class Speaker:
    number: int
    sampling: Sampling
    sample: int
    listener: Callable | None
    state: State
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    reason: str | None = None

    def hear(self, logits: Tensor) -> int:
        s = self.sampling
        probs = next_token_probs(logits[None], s.temperature, s.top_k, s.top_p)
        uniform = torch.tensor([s.uniform(self.sample, len(self.tokens))])
        token = sample(probs, uniform).item()
        self.tokens.append(token)
        if s.logprobs:
            self.logprobs.append((logits[token] - logits.logsumexp(0)).item())
        return token

    @property
    def ending(self) -> str | None:
        if self.tokens[-1] in self.sampling.stop_tokens:
            return "stop"
        return "length" if len(self.tokens) >= self.sampling.max_new_tokens else None

    def end(self, reason: str) -> None:
        self.state, self.reason = State.OVER, reason


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
        self.model = model
        self._attention, self._store = attention, store
        self.cache = PagedCache(num_blocks, block_size, prefix_caching=prefix_caching)
        self.scheduler = Scheduler(self.cache, max_tokens, max_sequences)
        c = model.config
        shape = (num_blocks, block_size, c.num_kv_heads, c.head_dim)
        self._layers = [
            (torch.zeros(shape, dtype=model.dtype), torch.zeros(shape, dtype=model.dtype))
            for _ in range(c.num_layers)
        ]
        self._speakers: dict[int, Speaker] = {}
        self._requests: dict[int, list[Speaker]] = {}

    def submit(
        self,
        prompt: Sequence[int],
        sampling: Sampling = Sampling(),  # noqa: B008
        on_token: Callable[[int, int], None] | None = None,
    ) -> int:
        if not set(prompt) <= set(range(self.model.config.vocab_size)):
            raise ValueError(f"prompt: {sorted(set(prompt))}")
        number = len(self._speakers)
        self.scheduler.add(number, list(prompt), sampling.max_new_tokens)
        self._requests[number] = [
            Speaker(number + i, sampling, i, on_token, State.UNBORN if i else State.QUEUED)
            for i in range(sampling.n)
        ]
        self._speakers |= {speaker.number: speaker for speaker in self._requests[number]}
        return number

    def step(self) -> Step:
        plan = self.scheduler.schedule()
        if not plan.chunks:
            return plan
        for keys, values in self._layers:
            for old, new in plan.copies:
                keys[new] = keys[old]
                values[new] = values[old]
        heard = []
        for number, logits in self._compute(plan):
            speaker = self._speakers[number]
            group = [speaker]
            if speaker.state is State.QUEUED:
                group = self._requests[number]
            heard.append((speaker, [(each, each.hear(logits)) for each in group]))
        self.scheduler.commit({first.number: tokens[0][1] for first, tokens in heard})
        for first, tokens in heard:
            for speaker, token in tokens[1:]:
                if speaker.ending is None:
                    self.scheduler.fork(first.number, speaker.number, token)
            for speaker, _ in tokens:
                was, speaker.state = speaker.state, State.SPEAKING
                if speaker.ending:
                    speaker.end(speaker.ending)
                    if was is not State.UNBORN:
                        self.scheduler.remove(speaker.number)
        for _, tokens in heard:
            for speaker, token in tokens:
                if speaker.listener:
                    speaker.listener(speaker.sample, token)
        return plan

    @torch.no_grad()
    def _compute(self, plan: Step) -> list[tuple[int, Tensor]]:
        size = self.cache.block_size
        tables = {c.request: self.cache.table(c.request) for c in plan.chunks}
        width = max(map(len, tables.values()))
        padded = torch.tensor([table + [-1] * (width - len(table)) for table in tables.values()])
        places = [(c.request, i) for c in plan.chunks for i in range(c.start, c.stop)]
        slots = torch.tensor([tables[r][i // size] * size + i % size for r, i in places])
        new = torch.tensor([len(c.tokens) for c in plan.chunks])
        held = torch.tensor([c.stop for c in plan.chunks])

        def attend(layer, q, k, v):
            per_token = [x.permute(0, 2, 1, 3)[0] for x in (q, k, v)]
            self._store(*per_token[1:], *self._layers[layer], slots)
            out = self._attention(per_token[0], *self._layers[layer], padded, new, held)
            return out[None].permute(0, 2, 1, 3)

        tokens = torch.tensor([[t for c in plan.chunks for t in c.tokens]])
        positions = torch.tensor([[i for _, i in places]])
        hidden = self.model.hidden(tokens, positions, attend)
        wanted = [c for c in plan.chunks if c.samples]
        if not wanted:
            return []
        rows = [places.index((c.request, c.stop - 1)) for c in wanted]
        logits = self.model.logits(hidden[:, rows])[0]
        return [(c.request, row) for c, row in zip(wanted, logits, strict=True)]

    def run(self) -> None:
        while True:
            if not self.step().chunks:
                return

    def abort(self, request: int) -> None:
        for speaker in self._of(request):
            if speaker.state in (State.QUEUED, State.SPEAKING):
                self.scheduler.remove(speaker.number)
            if speaker.state is not State.OVER:
                speaker.end("abort")

    def completions(self, request: int) -> list[Completion]:
        return [Completion(tuple(s.tokens), s.reason, tuple(s.logprobs)) for s in self._of(request)]

    def _of(self, request: int) -> list[Speaker]:
        try:
            return self._requests[request]
        except KeyError:
            raise ValueError(f"request {request}?") from None
