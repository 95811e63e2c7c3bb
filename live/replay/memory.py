"""What is remembered of a replay from one run of the command to the next: how far it came, and under which name."""

import hashlib
import os
import secrets
from pathlib import Path
from typing import Annotated

import msgspec

from live.client.sender import producer_of
from live.errors import SetupError
from live.replay.batches import MOST_EVENTS
from live.replay.options import Options


class Note(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What stands in the file.

    `run` is part of the ids that events are given, so that they stay the same from run to run. The first `sent` events
    were acknowledged; those up to `reach` may have been counted without our knowing, with the key of `producer`.
    """

    run: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    sent: Annotated[int, msgspec.Meta(ge=0)] = 0
    reach: int = 0
    producer: str = ""


def note_path(options: Options) -> Path:
    """Where it is kept how much of this file, as it now is, has been sent to this server and board."""
    stat = options.path.stat()
    name = f"{options.path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0{options.url}\0{options.board or ''}"
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "live-board"
    return folder / f"replay-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class Memory:
    """How far a replay came, kept in a file.

    Raises:
        SetupError: the file can't be read, or says that events may count twice with the key that is given now.
    """

    def __init__(self, options: Options) -> None:
        self._path = note_path(options)
        self._ids = options.ids
        self._producer = producer_of(options.key)
        self._note = (None if options.restart else _read(self._path)) or Note(run=secrets.token_hex(8))
        self._doubted = self._note.reach if self._ids else 0
        if self._doubted > self.sent and self._note.producer != self._producer:
            raise _other_producer(self._note)

    @property
    def run(self) -> str | None:
        """The name of the replay, for ids; None without."""
        return self._note.run if self._ids else None

    @property
    def sent(self) -> int:
        """How many events were acknowledged."""
        return self._note.sent

    def begin(self) -> None:
        """Note the name, before anything is sent under it."""
        self._note.producer = self._producer
        self.acknowledged(self.sent)

    def acknowledged(self, sent: int) -> None:
        """Note how many events were sent by now; the next batch may count before anything more can be noted."""
        self._note.sent = sent
        self._note.reach = max(self._doubted, sent + MOST_EVENTS) if self._ids else 0
        self._write()

    def settle(self, doubtful: object) -> None:
        """Note, at the end of a run, whether the batch behind those that were acknowledged may have been counted."""
        if doubtful:
            return
        self._note.reach = self._doubted
        if self._note.sent or self._doubted:
            self._write()
        else:
            self.forget()

    def forget(self) -> None:
        """Keep nothing: the whole file was sent."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        """Wholly or not at all, whatever happens meanwhile."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            with fresh.open("wb") as file:
                file.write(msgspec.json.encode(self._note))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except OSError as error:
            raise SetupError(f"can't note in {self._path} that {self.sent} events were sent: {error}") from None


def _read(path: Path) -> Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Note)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SetupError(
            f"{path} does not say how much was sent before; --restart begins with the first event"
        ) from None


def _other_producer(note: Note) -> SetupError:
    whose = f"with a key of producer {note.producer!r}" if note.producer else "without a key"
    return SetupError(
        f"the events behind the first {note.sent:,} were sent {whose}, and may have been counted: with another "
        f"producer's key they would count twice. Go on {whose}, or give --no-ids if that does not matter."
    )
