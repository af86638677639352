"""As the paper's code does it: a matrix of all paths, padded, and products along its rows."""

import torch
import torch.nn.functional as F
from torch import nn

from assignment.provided.speculative import NO_TOKEN

from ..attention.generate import next_token_probs, sample


class MedusaHeads(nn.Module):
    def __init__(self, num_heads, head_weight):
        super().__init__()
        vocab_size, d_model = head_weight.shape
        self.blocks = nn.ModuleList(
            nn.Linear(d_model, d_model, bias=False, dtype=head_weight.dtype)
            for _ in range(num_heads)
        )
        self.outputs = nn.ModuleList(
            nn.Linear(d_model, vocab_size, bias=False, dtype=head_weight.dtype)
            for _ in range(num_heads)
        )
        with torch.no_grad():
            for block in self.blocks:
                nn.init.zeros_(block.weight)
            for output in self.outputs:
                output.weight[:] = head_weight

    def forward(self, hidden):
        blocks = torch.stack([block.weight for block in self.blocks])
        outputs = torch.stack([output.weight for output in self.outputs])
        inner = F.silu(torch.einsum("...d,med->...me", hidden, blocks))
        return torch.einsum("...md,mvd->...mv", hidden[..., None, :] + inner, outputs)


def medusa_loss(head_logits, tokens, is_real):
    number, width = head_logits.shape[2], tokens.shape[1]
    labels = tokens.masked_fill(~is_real, -100)
    total = 0.0 * head_logits.sum()
    for m in range(number):
        if width <= 2 + m:
            break
        logits = head_logits[:, : width - 2 - m, m].flatten(0, 1)
        answers = labels[:, 2 + m :].flatten()
        sum_ = F.cross_entropy(logits, answers, ignore_index=-100, reduction="sum")
        total = total + 0.8**m * sum_ / (answers != -100).sum().clamp(min=1)
    return total


def tree_parents(choices):
    choices = [tuple(choice) for choice in choices]
    parents = [-1]
    for i, choice in enumerate(choices):
        before = choices[:i]
        if not choice or any(rank < 0 for rank in choice) or choice in before:
            raise ValueError(f"choices[{i}]: {choice}")
        if len(choice) == 1:
            parents.append(0)
        elif choice[:-1] in before:
            parents.append(before.index(choice[:-1]) + 1)
        else:
            raise ValueError(f"choices[{i}]: {choice} has no parent before it")
    return parents


def tree_tokens(root, head_logits, choices):
    number, vocab_size = head_logits.shape
    if max(map(len, choices), default=0) > number:
        raise ValueError("choices are deeper than there are heads")
    widest = max((max(choice) + 1 for choice in choices), default=0)
    ranked = head_logits.sort(dim=-1, descending=True, stable=True).indices
    table = F.pad(ranked, (0, max(widest - vocab_size, 0)), value=NO_TOKEN)
    heads = torch.tensor([len(choice) - 1 for choice in choices], dtype=torch.int64)
    ranks = torch.tensor([choice[-1] for choice in choices], dtype=torch.int64)
    return torch.cat([torch.tensor([root]), table[heads, ranks]])


def _ancestors(parents):
    """Which nodes are at or above each, as a closed relation."""
    size = len(parents)
    step = torch.eye(size)
    for node in range(1, size):
        step[node, parents[node]] = 1
    closed = step
    for _ in range(size.bit_length()):
        closed = ((closed @ closed) > 0).float()
    return closed > 0


def tree_depths(parents):
    return _ancestors(parents).sum(dim=1) - 1


def tree_mask(parents, length):
    past = torch.ones(len(parents), length, dtype=torch.bool)
    return torch.cat([past, _ancestors(parents)], dim=1)


def _paths(parents):
    """[T, deepest + 1]: the path to each node, then −1."""
    depths, above = tree_depths(parents), _ancestors(parents)
    paths = torch.full((len(parents), int(depths.max()) + 1), -1)
    for node in range(len(parents)):
        for other in above[node].nonzero()[:, 0].tolist():
            paths[node, depths[other]] = other
    return paths


def accept_path(tokens, parents, probs, uniforms):
    paths = _paths(parents)
    drawn = sample(probs, uniforms[tree_depths(parents)])
    right = (tokens[paths[:, 1:]] == drawn[paths[:, :-1]]) & (tokens[paths[:, 1:]] != NO_TOKEN)
    right = right & (paths[:, 1:] >= 0)
    counts = right.long().cumprod(dim=1).sum(dim=1)
    best = int(counts.argmax())
    path = paths[best, : int(counts[best]) + 1].tolist()
    return path, int(drawn[path[-1]])


def accept_typical(tokens, parents, probs, uniform, epsilon=0.09, delta=0.3):
    paths = _paths(parents)
    probs64 = probs.double()
    entropy = -(probs64 * torch.where(probs64 > 0, probs64, 1.0).log()).sum(dim=-1)
    threshold = torch.minimum(torch.tensor(epsilon), delta * torch.exp(-entropy))
    above, below = paths[:, :-1], paths[:, 1:]
    probability = probs64[above, tokens[below].clamp(min=0)]
    good = (probability > threshold[above]) & (below >= 0) & (tokens[below] != NO_TOKEN)
    good = good.long().cumprod(dim=1)
    counts = good.sum(dim=1)
    likelihood = torch.where(good > 0, probability, 1.0).log().sum(dim=1)
    likelihood = likelihood.masked_fill(counts < counts.max(), -torch.inf)
    best = int(likelihood.argmax())
    path = paths[best, : int(counts[best]) + 1].tolist()
    return path, int(sample(probs[path[-1]][None], torch.tensor([uniform]))[0])


def medusa_generate(
    past,
    heads,
    prompt,
    max_new_tokens,
    choices,
    *,
    temperature=0.0,
    top_k=None,
    top_p=1.0,
    uniforms=None,
    stop_tokens=(),
):
    if not prompt or max_new_tokens < 0:
        raise ValueError("prompt or max_new_tokens")
    if uniforms is None and temperature > 0:
        raise ValueError("uniforms are missing")
    if uniforms is not None and uniforms.shape != (max_new_tokens,):
        raise ValueError("uniforms have another shape")
    tree_parents(choices)
    if max_new_tokens == 0:
        return []
    uniforms = torch.zeros(max_new_tokens) if uniforms is None else uniforms

    text = list(prompt)
    chain = list(range(-1, len(prompt) - 1))
    hidden = past.feed(torch.tensor(prompt), torch.arange(len(prompt)), tree_mask(chain, 0))
    last = past.logits(hidden)[-1:]
    first = sample(next_token_probs(last, temperature, top_k, top_p), uniforms[:1])
    text.append(int(first))
    state, wanted = hidden[-1], len(prompt) + max_new_tokens
    while len(text) < wanted and text[-1] not in stop_tokens:
        missing = wanted - len(text)
        tree = [choice for choice in choices if len(choice) <= missing - 1]
        parents = tree_parents(tree)
        tokens = tree_tokens(text[-1], heads(state), tree)
        held = len(text) - 1
        fed = torch.where(tokens == NO_TOKEN, 0, tokens)
        hidden = past.feed(fed, held + tree_depths(parents), tree_mask(parents, held))
        probs = next_token_probs(past.logits(hidden), temperature, top_k, top_p)
        used = uniforms[len(text) - len(prompt) :]
        path, token = accept_path(tokens, parents, probs, used)
        past.keep(list(range(held)) + [held + node for node in path])
        for new in [*(int(tokens[node]) for node in path[1:]), token]:
            text.append(new)
            if new in stop_tokens:
                break
        state = hidden[path[-1]]
    return text[len(prompt) :]
