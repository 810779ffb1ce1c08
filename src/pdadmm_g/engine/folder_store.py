"""What the processes of one user on one machine tell each other, where nobody else can read or write it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class Board(Protocol):
    """Where texts stand by name for all to read: a store of ``torch.distributed``, or a :class:`FolderStore`."""

    def set(self, key: str, value: str, /) -> None:
        """Write a text."""

    def get(self, key: str, /) -> bytes:
        """The text that was last written, if this is a board that nobody else can write to."""

    def check(self, keys: list[str], /) -> bool:
        """Are there texts of these names?"""


class FolderStore:
    """Each text is the first line of a file, in a folder that only its owner can open.

    Files are overwritten in place, which needs no room on a full disk, and never locked: a process that is stopped
    while it writes holds up nobody.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, key: str, value: str, /) -> None:
        assert "\n" not in value
        file = os.open(self._path(key), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{value}\n".encode())
        finally:
            os.close(file)

    def get(self, key: str, /) -> bytes:
        with self._path(key).open("rb") as file:
            return file.readline().rstrip(b"\n")

    def check(self, keys: list[str], /) -> bool:
        return all(self._path(key).exists() for key in keys)

    def _path(self, key: str) -> Path:
        return self.folder / key.replace("/", "-")
