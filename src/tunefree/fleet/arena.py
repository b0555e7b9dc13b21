"""Values passed between processes of one run: tensors in shared memory, the small rest by pipe.

The memory has no name, only a file descriptor, so nothing remains when processes die.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch

ALIGNMENT = 64  # bytes, as torch's own allocator does


class Parcel(NamedTuple):
    """What goes through the pipe: a value without its arrays, and how much memory those take."""

    data: bytes
    size: int


class Arena:
    """Shared memory for the tensors and arrays of one value at a time."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map(os.fstat(fd).st_size)

    @classmethod
    def create(cls) -> Arena:
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("tunefree")
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, mmap.PAGESIZE)
        return cls(fd)

    def _map(self, size: int) -> None:
        self._bytes = torch.frombuffer(mmap.mmap(self.fd, size), dtype=torch.uint8)

    def _grow(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self._map(size)

    def pack(self, value: Any) -> Parcel:
        """Put the value's arrays here, in place of the previous ones."""
        file = io.BytesIO()
        packer = Packer(file)
        packer.dump(value)
        if packer.size > len(self._bytes):
            self._grow(packer.size)
        for offset, tensor in packer.tensors:
            self.view(offset, tensor.dtype, tensor.shape).copy_(tensor)
        return Parcel(file.getvalue(), packer.size)

    def unpack(self, parcel: Parcel, copy: bool) -> Any:
        """The value; its arrays are views into the shared memory, or copies of them."""
        if parcel.size > len(self._bytes):
            self._map(parcel.size)
        return Unpacker(io.BytesIO(parcel.data), self, copy).load()

    def view(self, offset: int, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
        size = shape.numel() * dtype.itemsize
        return self._bytes[offset : offset + size].view(dtype).view(shape)


class Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a value by its parts; arrays are stored separately, a user's functions by value."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[tuple[int, torch.Tensor]] = []
        self.size = 0
        self._places: dict[int, tuple[object, ...]] = {}  # by identity: one copy is enough
        self._kept: list[object] = []  # keeps them alive, as an identity must not be reused

    def persistent_id(self, value: Any) -> Any:
        """Where the value will be stored, if it is a plain tensor or array."""
        if id(value) in self._places:
            return self._places[id(value)]
        tensor = plain_tensor(value)
        if tensor is None:
            return None
        place = (self.size, tensor.dtype, tensor.shape, tensor is value)
        self.tensors.append((self.size, tensor))
        self.size += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        self._places[id(value)] = place
        self._kept.append(value)
        return place

    def reducer_override(self, value: Any) -> Any:
        """A memory-mapped file is mapped again instead of copied."""
        if type(value) is np.memmap and isinstance(value.base, mmap.mmap) and value.filename:
            mode = "c" if value.mode == "c" else "r"
            order = "C" if value.flags.c_contiguous else "F"
            at = (value.filename, value.dtype, mode, value.offset, value.shape, order)
            return np.memmap, at
        return super().reducer_override(value)


def plain_tensor(value: Any) -> torch.Tensor | None:
    """The value as a tensor for shared memory, if it is a tensor or a NumPy array."""
    if type(value) is torch.Tensor:
        dense = value.layout is torch.strided and value.device.type == "cpu"
        return value if dense and not value.requires_grad and not value.is_quantized else None
    if type(value) is not np.ndarray or value.dtype.kind not in "iuf":
        return None
    try:
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    except (TypeError, ValueError):  # a type or memory order that torch does not support
        return None


class Unpacker(pickle.Unpickler):
    """Reads what a Packer of the same run wrote."""

    def __init__(self, file: io.BytesIO, arena: Arena, copy: bool) -> None:
        super().__init__(file)
        self._arena, self._copy = arena, copy

    def persistent_load(self, place: Any) -> Any:
        *where, is_tensor = place
        tensor = self._arena.view(*where)
        tensor = tensor.clone() if self._copy else tensor
        return tensor if is_tensor else tensor.numpy()
