"""Values on the wire: JSON for structure, raw bytes for tensors, nothing that could run code.

A frame is two lengths, a JSON text, and the tensors' bytes one after another. Lists and JSON's own
scalars stand for themselves; everything else is an object tagged by the key "$". What only one
side can hold (handles, callbacks, names) is left to that side's `Codec`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import socket
import struct
import sys
import time

import numpy as np
import torch
from torch import Tensor

HEADER = struct.Struct("<IQ")  # bytes of JSON, bytes of tensors
MAX_JSON = 8 * 2**20  # far beyond what a test sends, and little once it is parsed
MAX_TENSORS = 2**28
MAX_KEYS = 10_000  # they may all collide
MAX_AXES = 64  # torch's own

_SCALARS = (type(None), bool, int, float, str)
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.float8_e4m3fn, torch.float8_e5m2,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
        torch.complex64, torch.complex128,
    )
}  # fmt: skip


class WireError(Exception):
    """A value that may not cross, or a frame that makes no sense."""


class Closed(Exception):
    """The other side is gone."""


class TooSlow(Exception):
    """The other side did not answer in time."""


class Blob:
    """The bytes of a message's tensors: no two of them share any."""

    def __init__(self, data: bytes | bytearray):
        self.size = self._left = len(data)
        self._data = memoryview(data)

    def take(self, start: int, size: int) -> bytearray:
        """A tensor's bytes, in memory of its own that torch may write to."""
        self._left -= size
        if start + size > self.size or self._left < 0:
            raise WireError("a tensor's bytes are missing, or are another's")
        taken = bytearray(self._data[start : start + size])
        if not self._left:
            self._data = memoryview(b"")  # the answer may take long
        return taken


class Channel:
    """Frames over a connected stream socket."""

    def __init__(self, connection: socket.socket):
        self._socket = connection

    def send(self, message: object, blobs: list[bytes], deadline: float | None = None) -> None:
        """Send a message; the other side must take it by `deadline`, a time.monotonic().

        `blobs` is emptied: the answer may take long.
        """
        text = json.dumps(message).encode()
        size = sum(map(len, blobs))
        if len(text) > MAX_JSON or size > MAX_TENSORS:
            raise WireError(f"a message of {len(text) + size} bytes is too large to cross")
        try:
            blobs.insert(0, HEADER.pack(len(text), size) + text)
            while blobs:  # joined they would be there twice
                self._wait_until(deadline)
                self._socket.sendall(blobs.pop(0))
        except TimeoutError as error:
            raise TooSlow from error
        except OSError as error:
            raise Closed from error

    def receive(self, deadline: float | None = None) -> tuple[object, Blob]:
        """The next message and its tensors' bytes; `deadline` is a time.monotonic()."""
        text_size, size = HEADER.unpack(self._exactly(HEADER.size, deadline))
        if text_size > MAX_JSON or size > MAX_TENSORS:
            raise WireError(f"a frame announces {text_size + size} bytes: too large")
        text = self._exactly(text_size, deadline)
        blob = Blob(self._exactly(size, deadline))
        try:
            return json.loads(bytes(text)), blob
        except (ValueError, RecursionError) as error:
            raise WireError("a frame is not JSON") from error

    def close(self) -> None:
        self._socket.close()

    def _wait_until(self, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TooSlow
        self._socket.settimeout(left)

    def _exactly(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            self._wait_until(deadline)
            try:
                count = self._socket.recv_into(view[filled:])
            except TimeoutError as error:
                raise TooSlow from error
            except OSError as error:
                raise Closed from error
            if count == 0:
                raise Closed
            filled += count
        return data


class Codec:
    """Values to messages and back. Each side adds what only it can hold, by the two hooks."""

    def encode_other(self, value: object) -> object:
        raise WireError(f"a {type(value).__name__} cannot cross")

    def decode_other(self, kind: str, message: dict) -> object:
        raise WireError(f"unknown kind of value {kind!r}")

    def encode(self, value: object, blobs: list[bytes]) -> object:
        if type(value) in _SCALARS:
            return value
        if type(value) in (Tensor, torch.nn.Parameter):
            return _encode_tensor(value, blobs)
        if type(value) is list:
            return [self.encode(item, blobs) for item in value]
        if isinstance(value, tuple):  # torch.Size and named tuples too
            return {"$": "tuple", "items": [self.encode(item, blobs) for item in value]}
        if type(value) is set:
            return {"$": "set", "items": [self.encode(item, blobs) for item in value]}
        if type(value) is dict:
            items = [[self.encode(k, blobs), self.encode(v, blobs)] for k, v in value.items()]
            return {"$": "dict", "items": items}
        if isinstance(value, torch.dtype):
            return {"$": "dtype", "name": str(value).removeprefix("torch.")}
        if isinstance(value, np.generic):
            return self.encode(value.item(), blobs)
        if is_provided_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            fields = [[name, self.encode(getattr(value, name), blobs)] for name in names]
            kind = type(value)
            return {"$": "dataclass", "of": [kind.__module__, kind.__name__], "fields": fields}
        return self.encode_other(value)

    def decode(self, message: object, blob: Blob) -> object:
        if type(message) in _SCALARS:
            return message
        if type(message) is list:
            return [self.decode(item, blob) for item in message]
        if type(message) is not dict:
            raise WireError("a value is neither a scalar, a list nor an object")
        kind = message.get("$")
        if kind == "tensor":
            return _decode_tensor(message, blob)
        if kind == "tuple":
            return tuple(self.decode(item, blob) for item in message["items"])
        if kind == "set":
            if len(message["items"]) > MAX_KEYS:
                raise WireError(f"a set of {len(message['items']):,} is too large to cross")
            return {self.decode(item, blob) for item in message["items"]}
        if kind == "dict":
            if len(message["items"]) > MAX_KEYS:
                raise WireError(f"a dict of {len(message['items']):,} keys is too large to cross")
            return {self.decode(k, blob): self.decode(v, blob) for k, v in message["items"]}
        if kind == "dtype":
            return _DTYPES[message["name"]]
        if kind == "dataclass":
            fields = {name: self.decode(value, blob) for name, value in message["fields"]}
            return _provided_dataclass(*message["of"])(**fields)
        return self.decode_other(kind, message)


def bytes_of(tensor: Tensor) -> Tensor:
    """A tensor's elements as uint8 [n]. One element is contiguous whatever its stride is."""
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _encode_tensor(tensor: Tensor, blobs: list[bytes]) -> dict:
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        raise WireError(f"only dense CPU tensors cross, not {tensor.layout} on {tensor.device}")
    plain = tensor.detach().resolve_conj().resolve_neg()
    raw = bytes_of(plain).numpy().tobytes() if plain.numel() else b""
    dtype = str(tensor.dtype).removeprefix("torch.")
    start = sum(map(len, blobs))
    blobs.append(raw)
    return {"$": "tensor", "dtype": dtype, "shape": list(tensor.shape), "start": start}


def _decode_tensor(message: dict, blob: Blob) -> Tensor:
    dtype, shape, start = _DTYPES[message["dtype"]], message["shape"], message["start"]
    sizes = [start, *shape]
    if len(shape) > MAX_AXES or not all(type(n) is int and 0 <= n < 2**62 for n in sizes):
        raise WireError("a tensor's shape or start makes no sense")
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(blob.take(start, size), dtype=torch.uint8)
    if dtype is torch.bool:  # a byte that is neither 0 nor 1 would be equal to nothing, or to both
        return raw.ne(0).reshape(shape)
    return raw.view(dtype).reshape(shape)


def is_provided_dataclass(value: object) -> bool:
    kind = type(value)
    return dataclasses.is_dataclass(kind) and kind.__module__.startswith("assignment.provided.")


def _provided_dataclass(module: str, name: str) -> type:
    if not module.startswith("assignment.provided."):
        raise WireError(f"{module}.{name} is not a dataclass of assignment.provided")
    found = getattr(sys.modules.get(module), name, None)  # nothing is imported on its behalf
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise WireError(f"{module}.{name} is not a dataclass of assignment.provided")
    return found
