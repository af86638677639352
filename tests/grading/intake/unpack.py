"""gzip, bzip2 and xz streams into memory, within a budget of bytes, streams and memory."""

from __future__ import annotations

import bz2
import lzma
import zlib

from tests.grading.intake.entries import Budget, Refused
from tests.grading.intake.limits import LARGEST_WINDOW, MOST_STREAMS

FED, GOT = 64 * 1024, 1024 * 1024  # bytes a step
SIGNATURES = {b"\x1f\x8b": "tar.gz", b"BZh": "tar.bz2", b"\xfd7zXZ\0": "tar.xz"}


class _Gzip:
    """zlib's decompressor with the interface that bz2 and lzma have."""

    def __init__(self):
        self._inflate, self._full = zlib.decompressobj(wbits=31), False

    def decompress(self, data: bytes, most: int) -> bytes:
        out = self._inflate.decompress(self._inflate.unconsumed_tail + data, most)
        self._full = len(out) == most
        return out

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._inflate.unconsumed_tail

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


def unpack(data: bytes, kind: str, budget: Budget) -> bytes:
    """All streams of `data`, one after the other; what follows them and is none is ignored."""
    signature = next(s for s, name in SIGNATURES.items() if name == kind)
    out, at, streams = bytearray(), 0, 0
    while data.startswith(signature, at):
        streams += 1
        if streams > MOST_STREAMS:
            raise Refused(f"has more than {MOST_STREAMS} compressed streams: pack it anew")
        try:
            at = _one_stream(data, at, _DECOMPRESSORS[kind](), out, budget)
        except EOFError:
            raise Refused(f"cannot be read as a {kind} archive: it is cut off") from None
        except (zlib.error, lzma.LZMAError, OSError, ValueError, MemoryError):
            raise Refused(f"cannot be read as a {kind} archive: it is damaged") from None
    return bytes(out)


def _one_stream(data: bytes, at: int, decompressor, out: bytearray, budget: Budget) -> int:
    """Unpack the stream that begins at `at`; where it ends."""
    while not decompressor.eof:
        fed = b""
        if decompressor.needs_input:
            fed = data[at : at + FED]
            at += len(fed)
            if not fed:
                raise EOFError
        got = decompressor.decompress(fed, GOT)
        budget.spend(len(got))
        out += got
    return at - len(decompressor.unused_data)
