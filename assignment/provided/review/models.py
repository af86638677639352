"""Questions 1 to 6: what a log, a chip, attention and its cache come to."""

from .numbers import Bounds, Heads, KVBytes, Recall, Streams, Windows
from .question import Ask, Question, Section

INTENSITY = Section("Arithmetic intensity", "accounting")
RECALL = Section("A task for memory, and requests for a server")


def about_streams(name: str, n: Streams) -> Question:
    text = (
        f"A server's log says of one request: it arrived at {_seconds(n.arrival)}, its first token "
        f"left at {_seconds(n.first)}, and {n.more} further tokens left after that, evenly, the "
        f"last one at {_seconds(n.last)}. {n.streams} requests with these very times run side "
        "by side."
    )
    asks = (
        Ask("ttft", "time to first token of one request", "s"),
        Ask("tpot", "time per output token of one request, after the first", "s per token"),
        Ask(
            "decode", "tokens per second of all requests from first to last token, the first ones "
            "not counted", "tokens/s",
        ),
        Ask(
            "throughput", "tokens per second of all requests, all tokens counted, from arrival to "
            "last token", "tokens/s",
        ),
    )  # fmt: skip
    source = Section("What users and operators see", "accounting")
    return Question(name, "One log", text, asks, source)


def bounded(name: str, n: Bounds) -> Question:
    text = (
        f"An {n.chip} does {n.flops_per_second / 1e12:g}e12 FLOP/s in 16 bits and moves "
        f"{n.bandwidth / 1e12:g}e12 bytes/s. A SwiGLU MLP (up, gate, down) has D = "
        f"{n.d_model} and F = {n.d_ff}, in bf16. For n tokens it does 6nDF FLOPs and moves "
        "4nD + 4nF + 6DF bytes. Attention without a mask, with as many KV heads as query heads, "
        "over a prompt of S tokens does 4S²D FLOPs and moves 8SD bytes (scores never leave the "
        "chip)."
    )
    asks = (
        Ask("chip", "the chip's FLOPs per byte", "FLOP/B"),
        Ask("mlp", f"the MLP's intensity for {n.tokens} tokens", "FLOP/B"),
        Ask("mlp_limit", f"what limits the MLP for {n.tokens} tokens", "compute or memory"),
        Ask("mlp_from", "the least n for which the MLP is limited by compute", "tokens, exact"),
        Ask(
            "attention_from", "the least S for which that attention is limited by compute",
            "tokens, exact",
        ),
    )  # fmt: skip
    return Question(name, "One chip", text, asks, INTENSITY)


def about_heads(name: str, n: Heads) -> Question:
    text = (
        f"One decode step (T = 1) attends over S = {n.length} keys with N = {n.num_heads} query "
        "heads; keys, values, queries and the result are in bf16 and are moved once, scores never. "
        f"Three models differ in their KV heads: K = {n.num_heads}, K = {n.num_kv_heads}, K = 1. "
        "For each, FLOPs of attention over bytes of attention."
    )
    asks = (
        Ask("all", f"intensity for K = {n.num_heads}", "FLOP/B"),
        Ask("some", f"intensity for K = {n.num_kv_heads}", "FLOP/B"),
        Ask("one", "intensity for K = 1", "FLOP/B"),
        Ask("batch", "by which factor they change when the batch doubles", "a factor"),
        Ask("limit", f"what it tends to for K = {n.num_kv_heads} as S grows", "FLOP/B"),
    )
    return Question(name, "Who shares a KV head", text, asks, INTENSITY)


def about_bytes(name: str, n: KVBytes) -> Question:
    text = (
        f"A model has {n.num_layers} layers and {n.num_heads} query heads of width {n.head_dim}; "
        "its cache is in bf16. Another model, with latent attention, has "
        f"{n.latent_layers} layers and {n.latent_heads} heads of width 128; it stores, for each "
        f"token and layer, a latent of {n.latent_dim} numbers and one key of {n.rope_dim} numbers "
        "with rotated positions that all its heads share, in bf16."
    )
    asks = (
        Ask("full", f"KV bytes of one token with {n.num_heads} KV heads", "bytes"),
        Ask("grouped", f"KV bytes of one token with {n.num_kv_heads} KV heads", "bytes"),
        Ask("latent", "bytes that the latent model stores of one token", "bytes"),
        Ask(
            "ratio", f"how many times less that is than with {n.latent_heads} KV heads of width "
            "128 in its layers", "a factor",
        ),
        Ask(
            "heads", "how many KV heads of width 128 would store as much (a fraction is fine)",
            "KV heads",
        ),
    )  # fmt: skip
    source = Section("What must fit", "accounting")
    return Question(name, "Bytes of one token", text, asks, source)


def about_windows(name: str, n: Windows) -> Question:
    text = (
        f"A model has {n.num_layers} layers with {_kv_heads(n.num_kv_heads)} of width 128, cached "
        f"in bf16. {n.num_global} layers see everything, {n.num_local} see the last "
        f"{n.window} tokens only and store no others. One sequence has {n.length} tokens."
    )
    asks = (
        Ask("global", "KV bytes of the sequence if all layers saw everything", "bytes"),
        Ask("mixed", "KV bytes as the model is", "bytes, exact"),
        Ask("ratio", "how many times less that is", "a factor"),
        Ask(
            "shared", "KV bytes if, besides, every two layers of a kind share their keys and "
            "values", "bytes",
        ),
        Ask(
            "reads", "does that sharing cut the bytes that attention reads in one step?",
            "yes or no",
        ),
    )  # fmt: skip
    source = Section("Sliding windows", "attention")
    return Question(name, "Windows and shared layers", text, asks, source)


def about_recall(name: str, n: Recall) -> Question:
    shown = "".join(f"{letter}{value}" for letter, value in n.pairs)
    asked = "".join(f"{letter}?" for letter in n.asked)
    text = (
        "A sequence shows pairs of a letter and a digit, then asks for digits: "
        f" {shown} → {asked}  Besides: a model of {n.num_layers} layers with "
        f"{_kv_heads(n.num_kv_heads)} of width 128 "
        f"reads {n.length} tokens in bf16; in a second model one layer in {n.every} is "
        "attention, as in the first, and the others keep a state of fixed size that needs no "
        "KV cache."
    )
    asks = (
        Ask("digits", "the digits asked for, in order", "a list, such as [1, 2, 3]"),
        Ask("task", "the name of this task", "two words"),
        Ask(
            "fills", "what fills a state of fixed size: how many pairs there are, or how far back "
            "they are?", "pairs or distance",
        ),
        Ask("attention", "KV bytes of the first model", "bytes"),
        Ask("hybrid", "KV bytes of the second model", "bytes"),
    )  # fmt: skip
    return Question(name, "What a state holds", text, asks, RECALL)


def _kv_heads(number: int) -> str:
    return f"{number} KV head{'' if number == 1 else 's'}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s" if milliseconds % 10 == 0 else f"{milliseconds / 1000} s"
