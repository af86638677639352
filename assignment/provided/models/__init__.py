"""Models, and the sessions through which a decoding loop talks to them.

    Llama         a decoder with one seam, `attend`, where attention and cache plug in
    TableLM       a tiny language model whose probabilities are known fractions, for tests
    LayeredLlama  one whose attention layers you bring, of several kinds
    LayerCache    what one layer's cache must offer; GrowingCache is a slow one that is given,
                  DelegatingCache one for tests
    Session       a batch of sequences in progress: ReplaySession recomputes, CachedSession caches

Trained models of the Llama kind: `toy` loads small ones that tell stories, `smollm2` a real one.
`training` is the loop that trained the toys.
"""

from .blocks import AttentionLayer
from .delegating_cache import DelegatingCache
from .growing_cache import GrowingCache
from .layered import LayeredLlama, LayeredSession
from .llama import Llama, LlamaConfig
from .rotary import rotate, rotate_at
from .sessions import CachedSession, LayerCache, ReplaySession, Session
from .slots import key_positions
from .table_lm import TableLM, TableSession

__all__ = [
    "AttentionLayer",
    "CachedSession",
    "DelegatingCache",
    "GrowingCache",
    "LayerCache",
    "LayeredLlama",
    "LayeredSession",
    "Llama",
    "LlamaConfig",
    "ReplaySession",
    "Session",
    "TableLM",
    "TableSession",
    "key_positions",
    "rotate",
    "rotate_at",
]
