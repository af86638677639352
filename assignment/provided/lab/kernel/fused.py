"""Keys and values as a server has them: not tensors of their own, but parts of a projection."""

from collections.abc import Callable

from torch import Tensor


def with_slices(function: Callable, projected: Tensor, *arguments: object) -> object:
    """Call function(*arguments), where each pair (start, end) stands for projected[:, start:end].

    Args:
        projected: [tokens, heads, head_dim], what one product made of all queries, keys and values.
            The elements of a slice's token lie together; the next token lies a whole row of
            `projected` further on.
    """
    return function(*(_slice(projected, argument) for argument in arguments))


def _slice(projected: Tensor, argument: object) -> object:
    if not isinstance(argument, tuple):
        return argument
    start, end = argument
    return projected[:, start:end]
