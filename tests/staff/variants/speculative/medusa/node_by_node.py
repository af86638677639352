"""The tree as dictionaries of children; each draw is made when it is needed. Nodes that hold no
token, and all below them, are not fed at all; the past is compacted when the next call comes."""

import math

import torch
from torch import nn

from assignment.provided.models.blocks import Linear
from assignment.provided.speculative import NO_TOKEN

from ..attention.generate import next_token_probs, sample


class MedusaHeads(nn.Module):
    def __init__(self, num_heads, head_weight):
        super().__init__()
        size, width = head_weight.shape
        self.blocks = nn.ModuleList([Linear(width, width) for _ in range(num_heads)])
        self.outputs = nn.ModuleList([Linear(width, size) for _ in range(num_heads)])
        for block, output in zip(self.blocks, self.outputs, strict=True):
            block.weight = nn.Parameter(torch.zeros_like(head_weight[:1]).expand(width, -1).clone())
            output.weight = nn.Parameter(head_weight.detach().clone())

    def forward(self, hidden):
        out = []
        for m, block in enumerate(self.blocks):
            inner = block(hidden)
            out.append(self.outputs[m](hidden + inner * inner.sigmoid()).unsqueeze(-2))
        return torch.cat(out, dim=-2)


def medusa_loss(head_logits, tokens, is_real):
    total = torch.zeros(())
    log_probs = head_logits - head_logits.logsumexp(dim=-1, keepdim=True)
    for m in range(head_logits.shape[2]):
        terms = [
            row[: max(len(said) - 2 - m, 0), m].gather(1, said[2 + m :, None])[:, 0]
            for row, said in (
                (row[: int(real.sum())], text[: int(real.sum())])
                for row, text, real in zip(log_probs, tokens, is_real, strict=True)
            )
        ]
        terms = torch.cat(terms)
        if len(terms):
            total = total - 0.8**m * terms.mean()
    return total


def tree_parents(choices):
    number = {}
    parents = [-1]
    for choice in choices:
        if len(choice) == 0 or choice in number or sorted(choice)[0] < 0:
            raise ValueError(choice)
        if len(choice) > 1 and choice[:-1] not in number:
            raise ValueError(choice)
        parents.append(number.get(choice[:-1], 0))
        number[choice] = len(parents) - 1
    return parents


def tree_tokens(root, head_logits, choices):
    tokens = [root]
    for choice in choices:
        if len(choice) > len(head_logits):
            raise ValueError(choice)
        values = head_logits[len(choice) - 1].tolist()
        order = sorted(range(len(values)), key=values.__getitem__, reverse=True)
        tokens.append(order[choice[-1]] if choice[-1] < len(order) else NO_TOKEN)
    return torch.tensor(tokens, dtype=torch.int64)


def _path(parents, node):
    return [] if node < 0 else [*_path(parents, parents[node]), node]


def tree_depths(parents):
    return torch.tensor([len(_path(parents, node)) - 1 for node in range(len(parents))])


def tree_mask(parents, length):
    mask = torch.zeros(len(parents), length + len(parents), dtype=torch.bool)
    mask[:, :length] = True
    for node in range(len(parents)):
        mask[node, [length + other for other in _path(parents, node)]] = True
    return mask


def _children(parents):
    children = {node: [] for node in range(len(parents))}
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    return children


def accept_path(tokens, parents, probs, uniforms):
    children, path = _children(parents), [0]
    for depth in range(len(parents)):
        node = path[-1]
        token = int(sample(probs[node : node + 1], uniforms[depth : depth + 1]))
        below = {int(tokens[child]): child for child in children[node]}
        below.pop(NO_TOKEN, None)
        if token not in below:
            break
        path.append(below[token])
    return path, token


def accept_typical(tokens, parents, probs, uniform, epsilon=0.09, delta=0.3):
    children = _children(parents)

    def best_below(node):
        """(nodes, log of their probability) of the best path below a node."""
        row = probs[node].tolist()
        entropy = -sum(p * math.log(p) for p in row if p > 0)
        threshold = min(epsilon, delta * math.exp(-entropy))
        best = ([], 0.0)
        for child in children[node]:
            token = int(tokens[child])
            if token == NO_TOKEN or not row[token] > threshold:
                continue
            nodes, log_probability = best_below(child)
            found = ([child, *nodes], log_probability + math.log(row[token]))
            if (len(found[0]), found[1]) > (len(best[0]), best[1]) or not best[0]:
                best = found
        return best

    path = [0, *best_below(0)[0]]
    return path, sample(probs[path[-1:]], torch.tensor([uniform])).item()


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
    if len(prompt) == 0:
        raise ValueError("prompt")
    if max_new_tokens < 0:
        raise ValueError("max_new_tokens")
    if temperature > 0 or uniforms is not None:
        if uniforms is None or tuple(uniforms.shape) != (max_new_tokens,):
            raise ValueError("uniforms")
    else:
        uniforms = torch.zeros(max_new_tokens)
    new, tree, keep, hidden = [], None, None, None
    tokens, parents = torch.tensor(prompt), list(range(-1, len(prompt) - 1))
    while len(new) < max_new_tokens:
        if keep is not None:
            past.keep(keep)
        held = past.length
        hidden = past.feed(tokens, tree_depths(parents) + held, tree_mask(parents, held))
        if not new:
            first = next_token_probs(past.logits(hidden[-1:]), temperature, top_k, top_p)
            path, found = [len(prompt) - 1], [int(sample(first, uniforms[:1]))]
        else:
            probs = next_token_probs(past.logits(hidden), temperature, top_k, top_p)
            path, token = accept_path(tokens, parents, probs, uniforms[len(new) :])
            found = [*(int(tokens[node]) for node in path[1:]), token]
            keep = [*range(held), *(held + node for node in path)]
        for token in found:
            new.append(token)
            if token in stop_tokens:
                return new
        if len(new) == max_new_tokens:
            break
        tree = [choice for choice in choices if len(choice) < max_new_tokens - len(new)]
        tokens = tree_tokens(new[-1], heads(hidden)[path[-1]], tree)
        parents = tree_parents(tree)
        tokens, parents = _without_padding(tokens.tolist(), parents)
    return new


def _without_padding(tokens, parents):
    numbers, kept = {0: 0}, [0]
    for node in range(1, len(parents)):
        if parents[node] in numbers and tokens[node] != NO_TOKEN:
            numbers[node] = len(kept)
            kept.append(node)
    above = [-1, *(numbers[parents[node]] for node in kept[1:])]
    return torch.tensor([tokens[node] for node in kept]), above
