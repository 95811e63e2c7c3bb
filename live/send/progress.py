"""The options of `live send`, and its progress: the number of sent events, and the name of the run in their ids."""

import hashlib
import os
import secrets
from pathlib import Path
from typing import Annotated

import msgspec

from live.client.sender import MAX_EVENTS
from live.client.target import parse_api_key, parse_url, producer_of
from live.errors import SetupError
from live.system.files import replacing


class SendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The input and the target of a run.

    The events are sent `speed` times as fast as they happened. If `speed` is None, they are sent as fast as the server
    counts. `key` is the API key, if the server requires one. With `ids`, each event without an id gets a new id.
    """

    path: Path
    url: str
    board: str | None = None
    speed: float | None = None
    restart: bool = False
    key: str | None = None
    ids: bool = True


def make_options(
    *, path: Path, url: str, board: str | None, speed: str, restart: bool, key: str | None, ids: bool
) -> SendOptions:
    """Build the options from flags. `speed` is a number, or `max`.

    Raises:
        SetupError: the URL, the API key or the speed is malformed.
    """
    try:
        factor = None if speed == "max" else float(speed)
    except ValueError:
        factor = 0
    if factor is not None and not 0 < factor < float("inf"):
        raise SetupError(f"--speed {speed!r}: expected a number such as 60, or max")
    try:
        return SendOptions(
            path=path, url=parse_url(url), board=board, speed=factor, restart=restart, key=parse_api_key(key), ids=ids
        )
    except ValueError as error:
        raise SetupError(str(error)) from None


class ProgressFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The content of the progress file.

    `run` is a name that is part of the ids of the events, so a later run sends the same ids. The first `sent` events
    were acknowledged. Later events, up to number `reach`, may have been counted without a response. They were sent
    with an API key of `producer`.
    """

    run: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    sent: Annotated[int, msgspec.Meta(ge=0)] = 0
    reach: int = 0
    producer: str = ""


def progress_path(options: SendOptions) -> Path:
    """Return the path of the progress file.

    Each state of an input file has its own progress for each server and board.
    """
    stat = options.path.stat()
    name = f"{options.path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0{options.url}\0{options.board or ''}"
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "live-board"
    return folder / f"send-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class SavedProgress:
    """The progress of sending a file, saved after each response.

    Raises:
        SetupError: the progress file is damaged, or events could count twice with the present API key.
    """

    def __init__(self, options: SendOptions) -> None:
        self._path = progress_path(options)
        self._ids = options.ids
        self._producer = producer_of(options.key)
        self._saved = ProgressFile(run=secrets.token_hex(8))
        if not options.restart:
            try:
                self._saved = msgspec.json.decode(self._path.read_bytes(), type=ProgressFile)
            except FileNotFoundError:
                pass
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise SetupError(
                    f"{self._path} is damaged, so it is unknown how much was sent; to start at the first event, add "
                    "--restart"
                ) from None
        self._doubted = self._saved.reach if self._ids else 0
        if self._doubted > self.sent and self._saved.producer != self._producer:
            producer = self._saved.producer
            key = f"with an API key of producer {producer!r}" if producer else "without an API key"
            raise SetupError(
                f"the events after the first {self.sent:,} were sent {key} and may have been counted; with the API key "
                f"of another producer they would count twice. Continue {key}, or add --no-ids if that does not matter."
            )

    @property
    def run(self) -> str | None:
        """The name that is part of the ids, or None without ids."""
        return self._saved.run if self._ids else None

    @property
    def sent(self) -> int:
        """Number of acknowledged events."""
        return self._saved.sent

    def begin(self) -> None:
        """Save the name of the run before events with this name are sent."""
        self._saved.producer = self._producer
        self.acknowledged(self.sent)

    def acknowledged(self, sent: int) -> None:
        """Save the number of acknowledged events. Also save that the next batch may count before the next call."""
        self._saved.sent = sent
        self._saved.reach = max(self._doubted, sent + MAX_EVENTS) if self._ids else 0
        self._write()

    def settle(self, *, in_doubt: bool) -> None:
        """At the end of a run, save that no later batch was counted, unless the last batch is in doubt."""
        if in_doubt:
            return
        self._saved.reach = self._doubted
        if self._saved.sent or self._doubted:
            self._write()
        else:
            self.forget()

    def forget(self) -> None:
        """Delete the progress file, because there is no progress to keep."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        """Replace the progress file atomically."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as file:
                file.write(msgspec.json.encode(self._saved))
        except OSError as error:
            raise SetupError(f"can't save in {self._path} that {self.sent} events were sent: {error}") from None
