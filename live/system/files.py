"""Files that are replaced as a whole: after a crash there is the old file or the new file."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file that replaces `path` when it is complete and on the disk. Only its owner can read it.

    Until it is complete, the file has a name that nobody can guess. If something with this name exists, it is not
    opened, so a link can't lead the content elsewhere. After an error, `path` is as before. Sync the directory of
    `path` if the new file must survive a power cut.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(new, "wb", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync the names of the files in a directory to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
