"""A Llama whose attention layers you bring, of another kind in each layer if you like.

    full     GroupedQueryAttention, KVCache
    local    SlidingWindowAttention, RollingCache
    latent   LatentAttention, LatentCache
    shared   SharedAttention, which reads the cache of an earlier layer

Which layer is which stands in `config.attention`. An attention layer is a module that is called as
layer(x [B,T,D], cache, num_tokens) and returns [B,T,D]: it projects, rotates, appends the new
tokens to its cache and attends; a shared one finds them there, as its owner came first.
"""

from collections.abc import Callable, Mapping

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
        """
        if caches is None:
            caches = self._caches_of_one_pass(len(tokens))
        x = self.embedding(tokens)
        for index, (layer, kind) in enumerate(
            zip(self.layers, self.config.attention_layers, strict=True)
        ):
            owner = index if kind.reads is None else kind.reads
            x = layer(x, caches.get(owner), num_tokens)
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

    def _caches_of_one_pass(self, batch_size: int) -> dict[int, object]:
        """Layers that others read write their keys and values down all the same."""
        read = {layer.reads for layer in self.config.attention if layer.reads is not None}
        return {index: GrowingCache(batch_size) for index in read}


class LayeredSession(SessionOverCaches):
    """A batch of sequences in progress on a LayeredLlama.

    Args:
        model: the LayeredLlama.
        caches: layer → cache, for each layer that is not shared.
    """

    def __init__(self, model: LayeredLlama, caches: Mapping[int, object]):
        super().__init__(list(caches.values()))
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
