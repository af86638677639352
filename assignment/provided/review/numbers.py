"""The numbers of each question, drawn from a student's id."""

from dataclasses import dataclass
from math import ceil

from .student import Chance

# D and F by chip. The MLP's crossing has a fraction below a half for each, so that rounding it
# falls one short; an L4 is left out because attention's does not.
WIDTHS = {
    "H100": (
        (3584, 9472), (4096, 11008), (4096, 12288), (4608, 36864), (5120, 27648), (5376, 21504),
        (8192, 22016),
    ),
    "H200": (
        (3072, 9216), (3584, 14336), (4096, 10240), (4096, 14336), (5120, 17408), (5120, 17920),
        (12288, 28672),
    ),
    "A100": (
        (3072, 8192), (3584, 18944), (4096, 11008), (4096, 12288), (5120, 13824), (6656, 17920),
        (7168, 18432),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Streams:
    """Question 1; times in milliseconds on a server's clock."""

    arrival: int
    first: int
    last: int
    more: int  # tokens after the first
    streams: int


@dataclass(frozen=True)
class Bounds:
    """Question 2."""

    chip: str
    flops_per_second: float
    bandwidth: float
    d_model: int
    d_ff: int
    tokens: int


@dataclass(frozen=True)
class Heads:
    """Question 3."""

    length: int
    num_heads: int
    num_kv_heads: int


@dataclass(frozen=True)
class KVBytes:
    """Question 4: a model with heads, and one with latents."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    latent_layers: int
    latent_heads: int
    latent_dim: int
    rope_dim: int


@dataclass(frozen=True)
class Windows:
    """Question 5."""

    num_global: int
    num_local: int
    num_kv_heads: int
    length: int
    window: int

    @property
    def num_layers(self) -> int:
        return self.num_global + self.num_local


@dataclass(frozen=True)
class Recall:
    """Question 6."""

    pairs: tuple[tuple[str, int], ...]
    asked: tuple[str, ...]
    length: int
    num_layers: int
    every: int  # one layer in so many is attention
    num_kv_heads: int


@dataclass(frozen=True)
class Rounding:
    """Question 7; values in tenths."""

    tenths: tuple[int, ...]
    place: int  # of the largest value, which the outlier replaces
    outlier: int  # a whole number, with the sign of what it replaces
    scale: float
    growth: float

    @property
    def values(self) -> list[float]:
        return [tenth / 10 for tenth in self.tenths]

    @property
    def with_outlier(self) -> list[float]:
        return [
            float(self.outlier) if place == self.place else value
            for place, value in enumerate(self.values)
        ]


@dataclass(frozen=True)
class Drafting:
    """Question 8; probabilities in tenths, of the tokens A, B, C."""

    draft: tuple[int, int, int]
    target: tuple[int, int, int]
    acceptance: float
    num_draft: int
    cost: float


@dataclass(frozen=True)
class Blocks:
    """Question 9."""

    block: int
    prompt: int
    samples: int
    new: int
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """Question 10."""

    lengths: tuple[int, int, int]


def streams(chance: Chance) -> Streams:
    arrival = chance.pick(range(1500, 9500, 100))
    first = arrival + chance.pick(range(200, 950, 50))
    more, apart = chance.pick((40, 50, 60, 70, 80)), chance.pick(range(12, 41))
    return Streams(arrival, first, first + more * apart, more, chance.pick(range(3, 17)))


def bounds(chance: Chance) -> Bounds:
    from ..lab.chips import CHIPS  # comes with torch, which an id alone does not need

    name = chance.pick(tuple(WIDTHS))
    chip = CHIPS[name]
    d_model, d_ff = chance.pick(WIDTHS[name])
    # Far from every chip's bound on either side.
    tokens = chance.pick((112, 120, 128, 640, 768, 1024))
    return Bounds(chip.name, chip.flops_per_second, chip.bandwidth, d_model, d_ff, tokens)


def heads(chance: Chance) -> Heads:
    pairs = ((28, 4), (32, 4), (40, 5), (48, 4), (48, 8), (56, 8), (60, 10), (80, 8), (96, 8))
    num_heads, num_kv_heads = chance.pick(pairs)
    return Heads(chance.pick((160, 192, 224, 256, 288, 320)), num_heads, num_kv_heads)


def kv_bytes(chance: Chance) -> KVBytes:
    pairs = ((32, 8), (40, 8), (48, 8), (56, 8), (80, 8), (40, 10), (60, 12), (72, 12))
    num_heads, num_kv_heads = chance.pick(pairs)
    return KVBytes(
        num_layers=chance.pick((32, 40, 48, 56, 64)),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=chance.pick((96, 112, 128)),
        latent_layers=chance.pick((27, 36, 45, 60, 61)),
        latent_heads=chance.pick((64, 96, 128)),
        latent_dim=chance.pick((256, 384, 512, 640)),
        rope_dim=chance.pick((32, 64)),
    )


def windows(chance: Chance) -> Windows:
    counts = ((4, 20), (6, 30), (8, 40), (10, 50), (8, 24), (10, 30), (4, 28), (6, 42))
    num_global, num_local = chance.pick(counts)
    window = chance.pick((512, 1024, 2048))
    length = window * chance.pick((8, 16, 32, 64))
    return Windows(num_global, num_local, chance.pick((1, 2, 4, 8)), length, window)


def recall(chance: Chance) -> Recall:
    letters = chance.several("ABCDEFGHKLMNPRST", 5)
    pairs = tuple(zip(letters, chance.several(range(1, 10), 5), strict=True))
    asked = letters
    while asked == letters:
        asked = chance.several(letters, 5)
    length, layers = chance.pick((65536, 131072, 262144)), chance.pick((24, 32, 40, 48, 64))
    return Recall(pairs, tuple(asked), length, layers, 8, chance.pick((2, 4, 8)))


def rounding(chance: Chance) -> Rounding:
    """Values none of which lies near the middle between two codes, so that all round alike."""
    while True:
        sizes = [chance.pick(range(50, 60)), *(chance.pick(range(4, 46)) for _ in range(7))]
        tenths = chance.several([size * chance.pick((1, -1)) for size in sizes], 8)
        place = max(range(8), key=lambda i: abs(tenths[i]))
        outlier = chance.pick((40, 50, 60, 70)) * (1 if tenths[place] > 0 else -1)
        scale, growth = chance.pick((1.5, 2, 2.5, 3, 4)), chance.pick(range(1030, 1200, 2)) / 1000
        drawn = Rounding(tuple(tenths), place, outlier, scale, growth)
        if len(set(sizes)) == 8 and all(map(_rounds_clearly, (drawn.values, drawn.with_outlier))):
            return drawn


def _rounds_clearly(values: list[float]) -> bool:
    """Whether no code is a close call, and cutting the fractions off would change some."""
    largest = max(map(abs, values))
    fractions = [abs(value) * 127 / largest % 1 for value in values]
    return all(abs(part - 0.5) > 0.06 for part in fractions) and any(
        part > 0.5 for part in fractions
    )


def drafting(chance: Chance) -> Drafting:
    """The draft says A more often than the target, B and C less often, not equally so."""
    options = [
        ((a, b, 10 - a - b), (c, d, 10 - c - d))
        for a in range(3, 9) for b in range(1, 10 - a)
        for c in range(1, a) for d in range(b + 1, 10 - c)
        if 10 - c - d > 10 - a - b and d - b != (10 - c - d) - (10 - a - b)
    ]  # fmt: skip
    draft, target = chance.pick(options)
    return Drafting(
        draft,
        target,
        acceptance=chance.pick((0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)),
        num_draft=chance.pick((3, 4, 5, 6)),
        cost=chance.pick((0.02, 0.04, 0.05, 0.08, 0.1)),
    )


def blocks(chance: Chance) -> Blocks:
    block = chance.pick((8, 16, 32))
    new = chance.pick(range(50, 200, 10))
    prompt = block * chance.pick(range(36, 90)) + chance.pick(_tails(block, new))
    lengths = chance.several(range(2, 16), 4)
    while sum(lengths) == 2 * max(lengths):  # half is useful, and half is not
        lengths = chance.several(range(2, 16), 4)
    return Blocks(block, prompt, chance.pick((3, 4, 5, 6)), new, tuple(lengths))


def _tails(block: int, new: int) -> list[int]:
    """Tokens in a prompt's last block behind which the new ones touch one block more."""
    alone = ceil(new / block)
    return [tail for tail in range(1, block) if ceil((tail + new) / block) > alone]


def rows(chance: Chance) -> Rows:
    return Rows(tuple(chance.several(range(3, 16), 3)))
