"""The engine on trained and larger models, and with attention as kernels will bring it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import CachedSession, Llama, LlamaConfig
from assignment.provided.models.toy import load_toy
from assignment.provided.serving import Sampling
from solutions.attention.generate import generate
from solutions.attention.grouped_query import grouped_query_attention
from solutions.attention.kv_cache import KVCache
from solutions.serving.engine import Engine, gather_attention, store_kv

BLOCK_SIZES = (1, 7, 16)
OPENINGS = [
    "",
    "Mara was a baker.",
    "Mara was a baker. One day",
    "Tom had two apples. He gave one of them to Mara, and then he went to the garden.",
    "The",
]
LIKE_SMOLLM2 = LlamaConfig(
    vocab_size=301,
    num_layers=4,
    d_model=72,
    num_heads=9,
    num_kv_heads=3,
    head_dim=8,
    d_ff=192,
    rope_theta=100_000.0,
)


@pytest.fixture(scope="module")
def like_smollm2() -> Llama:
    return Llama(LIKE_SMOLLM2, seed=4).requires_grad_(False)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Lengths under, at and over a block's, two of which begin alike."""
    generator = torch.Generator().manual_seed(6)
    lengths = (1, 6, 7, 8, 15, 16, 17, 40)
    rows = [torch.randint(301, (length,), generator=generator).tolist() for length in lengths]
    return [*rows, rows[-1][:33] + rows[2]]


def by_generate(model: Llama, prompts: list[list[int]], sampling: Sampling) -> list[list[int]]:
    """What `attention.generate` gives over a cache that is not paged."""
    sizes, rows, new = model.config, len(prompts), sampling.max_new_tokens
    shape = (rows, max(map(len, prompts)) + new, sizes.num_kv_heads, sizes.head_dim)
    caches = [KVCache(*shape) for _ in range(sizes.num_layers)]
    uniforms = torch.tensor([sampling.uniform(0, i) for i in range(new)])
    return generate(
        CachedSession(model, caches, grouped_query_attention),
        prompts,
        new,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        uniforms=uniforms.expand(rows, new),
        stop_tokens=sampling.stop_tokens,
    )


def served(model: Llama, prompts: list[list[int]], sampling: Sampling, **options):
    """The same through an engine, all at once: the answers, and how often one was preempted."""
    options = {"num_blocks": 200, "max_tokens": 16, "max_sequences": 6, **options}
    engine = Engine(model, **options)
    numbers = [engine.submit(prompt, sampling) for prompt in prompts]
    preempted = 0
    while (step := engine.step()).chunks:
        preempted += len(step.preempted)
    assert engine.cache.num_free == options["num_blocks"]
    return [list(engine.completions(number)[0].tokens) for number in numbers], preempted


# ---- models


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_stories_are_those_of_generate(temperature):
    pytest.importorskip("tokenizers", reason='needs tokenizers: pip install ".[real]"')
    model, tokenizer = load_toy("target"), load_tokenizer()
    prompts = [[tokenizer.begin, *tokenizer.encode(text)] for text in OPENINGS]
    stop = tuple(tokenizer.stop_tokens)
    sampling = Sampling(
        max_new_tokens=40, temperature=temperature, top_p=0.95, seed=3, stop_tokens=stop
    )
    expected = by_generate(model, prompts, sampling)
    for block_size in BLOCK_SIZES:
        got, _ = served(model, prompts, sampling, num_blocks=600, block_size=block_size)
        assert got == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_like_smollm2_with_room_and_without(like_smollm2, prompts, temperature):
    sampling = Sampling(max_new_tokens=16, temperature=temperature, top_k=50, seed=8)
    expected = by_generate(like_smollm2, prompts, sampling)
    assert len({tuple(answer) for answer in expected}) == len(prompts)
    for block_size in BLOCK_SIZES:
        got, _ = served(like_smollm2, prompts, sampling, block_size=block_size, num_blocks=300)
        assert got == expected
        tight = -(-70 // block_size)
        got, preempted = served(
            like_smollm2, prompts, sampling, block_size=block_size, num_blocks=tight
        )
        assert got == expected and preempted > 0


@torch.no_grad()
def test_a_model_in_bfloat16(prompts):
    """Its rounding depends on the batch: each token must be nearly the most probable one."""
    model = Llama(LIKE_SMOLLM2, seed=4).requires_grad_(False).bfloat16()
    seen = set()

    def attention(q: Tensor, k_cache: Tensor, v_cache: Tensor, *rest: Tensor) -> Tensor:
        seen.update((q.dtype, k_cache.dtype, v_cache.dtype))
        return gather_attention(q, k_cache, v_cache, *rest)

    answers, _ = served(model, prompts, Sampling(max_new_tokens=12), attention=attention)
    assert seen == {torch.bfloat16}
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer) == 12
        logits = model(torch.tensor([prompt + answer[:-1]]))[0, len(prompt) - 1 :].float()
        chosen = logits[range(12), answer]
        assert (logits.max(-1).values - chosen).max() < 0.1 * logits.std()


# ---- attention as kernels have it: one for decodes, one for prefills, and a store that may skip

PADDED = 8  # a kernel's launch covers a multiple of so many rows


def store_by_slots(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """As `store_kv`, but a row whose slot is −1 is padding and is not stored."""
    for row, slot in enumerate(slots.tolist()):
        if slot != -1:
            block, offset = divmod(slot, k_cache.shape[1])
            k_cache[block, offset], v_cache[block, offset] = k[row], v[row]


def padded_store(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Gives the kernel whole launches; what it must skip is NaN."""
    count = -len(slots) % PADDED
    k, v = (torch.cat([x, x.new_full((count, *x.shape[1:]), torch.nan)]) for x in (k, v))
    slots = torch.cat([slots, slots.new_full((count,), -1)])
    store_by_slots(k, v, k_cache, v_cache, slots)


def paged_decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, kv_lengths: Tensor
) -> Tensor:
    """One query a request, [R, N, H]: block after block, with a running maximum and sum."""
    size, num_kv_heads, head_dim = k_cache.shape[1:]
    outputs = []
    for row, table, length in zip(q, block_tables.tolist(), kv_lengths.tolist(), strict=True):
        query = row.view(num_kv_heads, -1, head_dim).float() / head_dim**0.5
        top = torch.full((*query.shape[:2], 1), -torch.inf)
        total, summed = torch.zeros_like(top), torch.zeros_like(query)
        for start in range(0, length, size):
            block, filled = table[start // size], min(size, length - start)
            keys, values = (x[block, :filled].float() for x in (k_cache, v_cache))
            scores = torch.einsum("kgh,skh->kgs", query, keys)
            new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
            weights, shrink = torch.exp(scores - new_top), torch.exp(top - new_top)
            total = total * shrink + weights.sum(-1, keepdim=True)
            summed = summed * shrink + torch.einsum("kgs,skh->kgh", weights, values)
            top = new_top
        outputs.append((summed / total).reshape(row.shape))
    return torch.stack(outputs).to(q.dtype)


def varlen_prefill(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    starts: Tensor,
    kv_lengths: Tensor,
) -> Tensor:
    """Chunks of queries, [T, N, H]: request r has rows starts[r] … starts[r + 1] − 1."""
    size, group = k_cache.shape[1], q.shape[1] // k_cache.shape[2]
    out = torch.empty_like(q)
    for r, length in enumerate(kv_lengths.tolist()):
        first, stop = starts[r : r + 2].tolist()
        places = torch.arange(length)
        slots = (block_tables[r, places // size], places % size)
        keys, values = (x[slots].repeat_interleave(group, dim=1) for x in (k_cache, v_cache))
        scores = torch.einsum("tnh,snh->nts", q[first:stop], keys) / q.shape[-1] ** 0.5
        unseen = places > torch.arange(length - (stop - first), length)[:, None]
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        out[first:stop] = torch.einsum("nts,snh->tnh", weights, values)
    return out


def by_two_kernels(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_lengths: Tensor,
    kv_lengths: Tensor,
) -> Tensor:
    """As `gather_attention`: rows with one query to one kernel, all others to the other."""
    decodes = query_lengths == 1
    is_decode = decodes.repeat_interleave(query_lengths)
    out = torch.empty_like(q)
    if decodes.any():
        out[is_decode] = paged_decode(
            q[is_decode], k_cache, v_cache, block_tables[decodes], kv_lengths[decodes]
        )
    if not decodes.all():
        ends = query_lengths[~decodes].cumsum(0)
        starts = torch.cat([ends.new_zeros(1), ends])
        out[~is_decode] = varlen_prefill(
            q[~is_decode], k_cache, v_cache, block_tables[~decodes], starts, kv_lengths[~decodes]
        )
    return out


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_attention_and_store_may_be_others(like_smollm2, prompts, block_size):
    sampling = Sampling(max_new_tokens=12, temperature=0.9, seed=2)
    mixed = []

    def attention(*arguments: Tensor) -> Tensor:
        query_lengths = arguments[4]
        mixed.append(bool((query_lengths == 1).any() and (query_lengths > 1).any()))
        got = by_two_kernels(*arguments)
        torch.testing.assert_close(got, gather_attention(*arguments), rtol=1e-4, atol=1e-5)
        return got

    got, preempted = served(
        like_smollm2,
        prompts,
        sampling,
        block_size=block_size,
        num_blocks=-(-70 // block_size),
        attention=attention,
        store=padded_store,
    )
    assert got == by_generate(like_smollm2, prompts, sampling)
    assert any(mixed) and not all(mixed) and preempted > 0


def test_store_writes_its_slots_and_no_other():
    """The reference's and the padded one, side by side."""
    generator = torch.Generator().manual_seed(1)
    k, v = torch.randn(2, 5, 3, 4, generator=generator)
    slots = torch.tensor([13, 0, 7, 6, 20])
    for store in (store_kv, padded_store):
        k_cache, v_cache = torch.full((2, 3, 7, 3, 4), 9.0)
        store(k, v, k_cache, v_cache, slots)
        for new, cache in ((k, k_cache), (v, v_cache)):
            rows = dict(zip(slots.tolist(), new, strict=True))
            for slot in range(21):
                expected = rows.get(slot, torch.full((3, 4), 9.0))
                assert torch.equal(cache[slot // 7, slot % 7], expected)
