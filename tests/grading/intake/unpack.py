"""gzip, bzip2 and xz streams into memory, within a budget of bytes, streams and memory."""

from __future__ import annotations

import bz2
import lzma
import zlib

from tests.grading.intake.entries import Budget, Refused
from tests.grading.intake.limits import BZIP2_EFFORT, LARGEST_WINDOW, MOST_STREAMS

FED, GOT = 64 * 1024, 1024 * 1024  # bytes a step
SIGNATURES = {b"\x1f\x8b": "tar.gz", b"BZh": "tar.bz2", b"\xfd7zXZ\0": "tar.xz"}


class _Gzip:
    """zlib's decompressor with the interface that bz2 and lzma have."""

    def __init__(self):
        self._inflate = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, most: int) -> bytes:
        return self._inflate.decompress(self._inflate.unconsumed_tail + data, most)

    @property
    def needs_input(self) -> bool:
        return not self._inflate.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data


_DECOMPRESSORS = {
    "tar.gz": _Gzip,
    "tar.bz2": bz2.BZ2Decompressor,
    "tar.xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LARGEST_WINDOW),
}


def unpack(data: bytes, kind: str, budget: Budget) -> bytearray:
    """All streams of `data`, one after the other; what follows them and is none is ignored."""
    signature = next(s for s, name in SIGNATURES.items() if name == kind)
    out, at, streams = bytearray(), 0, 0
    while data.startswith(signature, at):
        streams += 1
        if streams > MOST_STREAMS:
            raise Refused(f"has more than {MOST_STREAMS} compressed streams: pack it anew")
        try:
            at = _one_stream(data, at, kind, out, budget)
        except EOFError:
            raise Refused(f"cannot be read as a {kind} archive: it is cut off") from None
        except (zlib.error, lzma.LZMAError, OSError, ValueError, MemoryError):
            raise Refused(f"cannot be read as a {kind} archive: it is damaged") from None
    return out


def _one_stream(data: bytes, at: int, kind: str, out: bytearray, budget: Budget) -> int:
    """Unpack the stream that begins at `at`; where it ends."""
    decompressor, effort = _DECOMPRESSORS[kind](), BZIP2_EFFORT if kind == "tar.bz2" else 1
    while not decompressor.eof:
        hungry = decompressor.needs_input
        fed = data[at : at + FED] if hungry else b""
        at += len(fed)
        got = decompressor.decompress(fed, GOT)
        if hungry and not (fed or got or decompressor.eof):
            raise EOFError
        budget.spend(len(got), effort)
        out += got
    return at - len(decompressor.unused_data)
