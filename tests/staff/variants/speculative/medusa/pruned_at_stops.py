"""A rank is counted, not sorted; the request is checked in full before anything is fed, and nodes
below a stop token are not fed."""

import torch
import torch.nn.functional as F
from torch import nn

from assignment.provided.models.blocks import Linear
from assignment.provided.speculative import NO_TOKEN

from ..attention.generate import next_token_probs, sample


class MedusaHeads(nn.Module):
    def __init__(self, num_heads, head_weight):
        super().__init__()
        vocab_size, d_model = head_weight.shape
        self.blocks = nn.ModuleList(Linear(d_model, d_model) for _ in range(num_heads))
        self.outputs = nn.ModuleList(Linear(d_model, vocab_size) for _ in range(num_heads))
        start = {f"blocks.{m}.weight": torch.zeros(d_model, d_model) for m in range(num_heads)}
        start |= {f"outputs.{m}.weight": head_weight for m in range(num_heads)}
        self.to(head_weight.dtype).load_state_dict(start)

    def forward(self, hidden):
        logits = hidden.new_empty(*hidden.shape[:-1], len(self.blocks), self._vocab_size)
        for m in range(len(self.blocks)):
            logits[..., m, :] = self.outputs[m](F.silu(self.blocks[m](hidden)) + hidden)
        return logits

    @property
    def _vocab_size(self):
        return self.outputs[0].weight.shape[0]


def medusa_loss(head_logits, tokens, is_real):
    width, number = head_logits.shape[1:3]
    places = torch.arange(width)[:, None] + 2 + torch.arange(number)  # [T, M]
    inside = places < width
    places = places.clamp(max=width - 1)
    real = is_real[:, places] & inside  # [B, T, M]
    answers = tokens[:, places].where(real, 0)
    nats = -head_logits.log_softmax(-1).gather(-1, answers[..., None])[..., 0]
    sums, counts = nats.where(real, 0).sum(dim=(0, 1)), real.sum(dim=(0, 1))
    return (0.8 ** torch.arange(number) * sums / counts.clamp(min=1)).sum()


def tree_parents(choices):
    seen, parents = [()], [-1]
    for choice in choices:
        if not choice or choice in seen or choice[:-1] not in seen or any(r < 0 for r in choice):
            raise ValueError(f"{choice}")
        parents.append(seen.index(choice[:-1]))
        seen.append(choice)
    return parents


def tree_tokens(root, head_logits, choices):
    if any(len(choice) > head_logits.shape[0] for choice in choices):
        raise ValueError("too deep")
    found = torch.full((1 + len(choices),), NO_TOKEN)
    found[0] = root
    for node, choice in enumerate(choices, start=1):
        row = head_logits[len(choice) - 1]
        if choice[-1] < len(row):
            # its rank: how many are larger, or as large and before it
            larger = (row[:, None] < row[None, :]).sum(dim=1)
            equal = (row[:, None] == row[None, :]).tril(-1).sum(dim=1)
            found[node] = int((larger + equal == choice[-1]).nonzero()[0])
    return found


def tree_depths(parents):
    depths = torch.zeros(len(parents), dtype=torch.int64)
    at = torch.tensor(parents)
    while (at >= 0).any():
        depths += at >= 0
        at = torch.where(at >= 0, torch.tensor(parents)[at.clamp(min=0)], -1)
    return depths


def tree_mask(parents, length):
    size = len(parents)
    mask = torch.zeros(size, length + size, dtype=torch.bool)
    mask[0, :length] = True
    mask[0, length] = True
    for node in range(1, size):
        mask[node] = mask[parents[node]]
        mask[node, length + node] = True
    return mask


def accept_path(tokens, parents, probs, uniforms):
    node, path, depth = 0, [0], 0
    while True:
        token = sample(probs[[node]], uniforms[[depth]]).item()
        at = [i for i in range(node + 1, len(parents)) if parents[i] == node]
        at = [i for i in at if tokens[i].item() == token]
        if not at:
            return path, token
        (node,) = at
        path.append(node)
        depth += 1


def accept_typical(tokens, parents, probs, uniform, epsilon=0.09, delta=0.3):
    entropy = torch.distributions.Categorical(probs.nan_to_num(1.0)).entropy()
    threshold = torch.clamp(delta * torch.exp(-entropy), max=epsilon)
    length, chance, ok = [1], [1.0], [True]
    for node in range(1, len(parents)):
        parent, token = parents[node], int(tokens[node])
        p = 0.0 if token == NO_TOKEN else float(probs[parent, token])
        ok.append(ok[parent] and p > float(threshold[parent]))
        length.append(length[parent] + 1)
        chance.append(chance[parent] * p)
    best = max((i for i in range(len(parents)) if ok[i]), key=lambda i: (length[i], chance[i]))
    path = [best]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path, int(sample(probs[best].unsqueeze(0), torch.tensor([uniform])).item())


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
    next_token_probs(torch.zeros(1, 2), temperature, top_k, top_p)
    tree_parents(choices)
    if not prompt or max_new_tokens < 0 or (uniforms is None and temperature > 0):
        raise ValueError("this request makes no sense")
    if uniforms is not None and list(uniforms.shape) != [max_new_tokens]:
        raise ValueError("uniforms")
    if max_new_tokens == 0:
        return []
    if uniforms is None:
        uniforms = torch.rand(max_new_tokens)

    def law(hidden):
        return next_token_probs(past.logits(hidden), temperature, top_k, top_p)

    length = len(prompt)
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    hidden = past.feed(torch.tensor(prompt), torch.arange(length), causal)[length - 1]
    new = [int(sample(law(hidden[None]), uniforms[:1]))]
    while len(new) < max_new_tokens and new[-1] not in stop_tokens:
        logits = heads(hidden[None])[0]
        tokens, parents = _usable(new, logits, choices, max_new_tokens, stop_tokens)
        length = past.length
        fed = tokens.masked_fill(tokens == NO_TOKEN, 1)
        rows = past.feed(fed, length + tree_depths(parents), tree_mask(parents, length))
        path, last = accept_path(tokens, parents, law(rows), uniforms[len(new) :])
        new = new + tokens[path].tolist()[1:] + [last]
        past.keep(list(range(length)) + [length + i for i in path])
        hidden = rows[path[-1]]
        for i, token in enumerate(new):
            if token in stop_tokens:
                return new[: i + 1]
    return new


def _usable(new, logits, choices, max_new_tokens, stop_tokens):
    """The tree without what cannot be used: too deep, or below a stop token."""
    tree = [choice for choice in choices if len(choice) < max_new_tokens - len(new)]
    tokens = tree_tokens(new[-1], logits, tree).tolist()
    ends = {choice for choice, token in zip(tree, tokens[1:], strict=True) if token in stop_tokens}
    for choice in tree:
        if choice[:-1] in ends:
            ends.add(choice)
    tree = [choice for choice in tree if choice[:-1] not in ends]
    return tree_tokens(new[-1], logits, tree), tree_parents(tree)
