"""The manifest of a backup: what is in it, and the checksum of each file. It is written last."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from live.errors import SetupError
from live.journal.database import file_name
from live.system.files import replacing, sync_folder

FORMAT: Final = 1
NAME: Final = "manifest.json"
BOARDS: Final = "boards.toml"
"""The name of the copy of the boards file."""

_PIECE: Final = 1024**2  # bytes in memory at once


class File(msgspec.Struct, frozen=True):
    """A file of a backup: its name, its size in bytes, and the SHA-256 of its content."""

    name: str
    size: int
    sha256: str


class Position(msgspec.Struct, frozen=True):
    """How far a board is in a backup."""

    board: str
    epoch: str
    offset: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds.

    Attributes:
        format: the number of this format.
        version: the version of Live Board that made it.
        schema: the version of the journal's tables.
        prefix: the prefix of store keys.
        journal: the id of the journal's database.
        made: when it was complete, in microseconds since 1970.
        boards: how far each board is.
        files: its other files.
        left_out: the boards that have no journal, of which it holds nothing.
    """

    format: int
    version: str
    schema: int
    prefix: str
    journal: str
    made: int
    boards: list[Position]
    files: list[File]
    left_out: list[str] = []


def fingerprint(path: Path, show: Callable[[int], None] = lambda _: None) -> File:
    """The size and the checksum of a file, which is synced to disk. Calls `show` with the bytes so far."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            show(size)
    return File(path.name, size, digest.hexdigest())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Complete a backup."""
    with replacing(folder / NAME) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup.

    Raises:
        SetupError: there is none, or this version cannot read it.
    """
    path = folder / NAME
    try:
        content = path.read_bytes()
        number = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"0"))
        if (found := msgspec.json.decode(number, type=int)) != FORMAT:
            raise SetupError(f"{path} has format {found}, and this version of Live Board reads format {FORMAT}")
        return msgspec.json.decode(content, type=Manifest)
    except FileNotFoundError:
        raise SetupError(f"{folder} has no {NAME}: it is not a backup, or the backup was interrupted") from None
    except (OSError, msgspec.DecodeError) as error:
        raise SetupError(f"can't read {path}: {error}") from None


def check_files(folder: Path, manifest: Manifest, show: Callable[[int, int], None]) -> None:
    """Compare every file of a backup with its checksum. Calls `show` with the bytes so far, and of all.

    Raises:
        SetupError: the manifest names no journal or a file that no backup has, or a file is missing or differs.
    """
    names, journal = [file.name for file in manifest.files], file_name(manifest.prefix)
    if names.count(journal) != 1:
        raise SetupError(f"{folder / NAME} does not name the journal, {journal}: this is not a complete backup")
    if foreign := [name for name in names if name not in (journal, BOARDS)]:
        raise SetupError(f"{folder / NAME} names a file that is not of a backup: {foreign[0]!r}")
    done, total = 0, sum(file.size for file in manifest.files)
    for file in manifest.files:
        path, before = folder / file.name, done
        try:
            found = fingerprint(path, lambda size, before=before: show(before + size, total))  # type: ignore[misc]
        except OSError as error:
            raise SetupError(f"the backup is damaged: can't read {path}: {error.strerror}") from None
        if found != file:
            raise SetupError(f"the backup is damaged: {path} is not the file that was written. Use another backup")
        done += file.size
