"""A Llama whose attention layers you bring, of another kind in each layer if you like.

    full     GroupedQueryAttention, KVCache
    local    SlidingWindowAttention, RollingCache
    latent   LatentAttention, LatentCache
    shared   SharedAttention, which reads the cache of an earlier layer

Which layer is which stands in `config.attention`. An attention layer is a module that is called as
layer(x [B,T,D], cache, num_tokens) and returns [B,T,D]: it projects, rotates, appends the new
tokens to its cache and attends; a shared one finds them there, as its owner came first.
"""

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from .blocks import MLP, Embedding, Linear, LlamaConfig, RMSNorm
from .growing_cache import GrowingCache
from .llama import draw_weights
from .sessions import SessionOverCaches


class LayeredLlama(nn.Module):
    """tokens → embedding → blocks of attention and MLP → norm → logits, as `Llama`.

    Args:
        config: the sizes, and the kind of each layer.
        attention: makes the layers of each kind that the config has, called as
            attention["full"](d_model, num_heads, num_kv_heads, head_dim, rope_theta)
            attention["local"](d_model, num_heads, num_kv_heads, head_dim, window, rope_theta)
            attention["latent"](d_model, num_heads, latent_dim, nope_dim, rope_dim, v_dim,
                rope_theta), with nope_dim = v_dim = head_dim
            attention["shared"](d_model, num_heads, num_kv_heads, head_dim, window, rope_theta),
                with the window of the layer that it reads, or None
        seed: decides the weights, as in `Llama`.

    Raises:
        ValueError: if a kind of the config is missing in `attention`.
    """

    def __init__(
        self, config: LlamaConfig, attention: Mapping[str, Callable[..., nn.Module]], seed: int = 0
    ):
        super().__init__()
        self.config = config
        _check_kinds(config, attention, "attention")
        self.embedding = Embedding(config.vocab_size, config.d_model)
        with torch.random.fork_rng(devices=[]):  # an nn.Linear draws weights when it is made
            self.layers = nn.ModuleList(
                Block(config, _attention(config, index, attention))
                for index in range(config.num_layers)
            )
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        if not config.tie_embeddings:
            self.head = Linear(config.d_model, config.vocab_size)
        draw_weights(self, seed)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        caches: Mapping[int, object] | None = None,
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each of `tokens`.

        Args:
            tokens: token ids; they come behind what the caches hold.
            caches: layer → cache, for each layer that is not shared. Default: `tokens` are whole
                sequences and nothing is kept.
            num_tokens: how many of row b's tokens, from the left, are real. Default: all.

        Raises:
            ValueError: if a layer that is not shared has no cache, or one that is shared has one.
        """
        owners = self._owners()
        if caches is None:
            caches = self._caches_of_one_pass(len(tokens))
            num_tokens = None  # real tokens come first and see nothing of the padding behind them
        elif set(caches) != set(owners):
            raise ValueError(
                f"caches: expected one for each layer that is not shared, {sorted(set(owners))}, "
                f"got {sorted(caches)}"
            )
        x = self.embedding(tokens)
        for layer, owner in zip(self.layers, owners, strict=True):
            x = layer(x, caches[owner], num_tokens)
        head = self.embedding if self.config.tie_embeddings else self.head
        return F.linear(self.norm(x), head.weight)

    def session(
        self, caches: Mapping[str, Callable], batch_size: int, capacity: int
    ) -> "LayeredSession":
        """A session over fresh caches, in the dtype of the weights.

        Args:
            caches: makes the caches of each kind that keeps something, called as
                caches["full"](batch_size, capacity, num_kv_heads, head_dim, dtype)
                caches["local"](batch_size, window, num_kv_heads, head_dim, dtype)
                caches["latent"](batch_size, capacity, latent_dim, rope_dim, dtype)
            batch_size, capacity: rows, and slots of a row.
        """
        _check_kinds(self.config, {**caches, "shared": None}, "caches")
        config, dtype = self.config, self.embedding.weight.dtype
        made = {}
        for index, layer in enumerate(config.attention_layers):
            if layer.kind == "latent":
                sizes = (capacity, layer.latent_dim, layer.rope_dim)
            else:
                sizes = (layer.window or capacity, config.num_kv_heads, config.head_dim)
            if layer.kind != "shared":
                made[index] = caches[layer.kind](batch_size, *sizes, dtype)
        return LayeredSession(self, made)

    def _owners(self) -> list[int]:
        """For each layer the one whose cache it reads: itself, unless it is shared."""
        layers = self.config.attention_layers
        return [i if layer.reads is None else layer.reads for i, layer in enumerate(layers)]

    def _caches_of_one_pass(self, batch_size: int) -> dict[int, GrowingCache | None]:
        """None, but for layers that others read: those write their keys and values down."""
        read = {layer.reads for layer in self.config.attention}
        return {i: GrowingCache(batch_size) if i in read else None for i in self._owners()}


class LayeredSession(SessionOverCaches):
    """A batch of sequences in progress on a LayeredLlama.

    A cache with a window may refuse to go back as far as `truncate`, or a call that failed, asks
    for. If all have the same slack, the one with the smallest window refuses first: it is asked
    first, and then nothing has changed.

    Args:
        model: the LayeredLlama.
        caches: layer → cache, for each layer that is not shared.
    """

    def __init__(self, model: LayeredLlama, caches: Mapping[int, object]):
        layers = model.config.attention_layers
        narrow_first = sorted(caches, key=lambda index: layers[index].window or math.inf)
        super().__init__([caches[index] for index in narrow_first])
        self.model, self._caches_by_layer = model, caches

    def _feed(self, tokens: Tensor, num_tokens: Tensor | None) -> Tensor:
        return self.model(tokens, self._caches_by_layer, num_tokens)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: LlamaConfig, attention: nn.Module):
        super().__init__()
        self.attention_norm = RMSNorm(config.d_model, config.norm_eps)
        self.attention = attention
        self.mlp_norm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cache: object, num_tokens: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cache, num_tokens)
        return x + self.mlp(self.mlp_norm(x))


def _attention(
    config: LlamaConfig, index: int, makers: Mapping[str, Callable[..., nn.Module]]
) -> nn.Module:
    layer = config.attention_layers[index]
    make, width, heads = makers[layer.kind], config.d_model, config.num_heads
    if layer.kind == "latent":
        sizes = (layer.latent_dim, config.head_dim, layer.rope_dim, config.head_dim)
        return make(width, heads, *sizes, config.rope_theta)
    sizes = (width, heads, config.num_kv_heads, config.head_dim)
    if layer.kind == "full":
        return make(*sizes, config.rope_theta)
    owner = layer if layer.reads is None else config.attention_layers[layer.reads]
    return make(*sizes, owner.window, config.rope_theta)


def _check_kinds(config: LlamaConfig, makers: Mapping[str, object], argument: str) -> None:
    missing = sorted({layer.kind for layer in config.attention_layers} - set(makers))
    if missing:
        raise ValueError(f"{argument}: expected one for each kind of layer, got none for {missing}")
