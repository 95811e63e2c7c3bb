"""The facts about the store that a server keeps in its data directory, so that it notices a loss of data (I8).

For each prefix of store keys, `witness-<prefix>.json` holds the identity of the store, whether API keys are required,
what was lost, and which losses an operator has accepted. A loss concerns one board, or the whole store: its identity,
the definitions of boards, or the producers. Every change is synced to disk, at once or, if another process is writing,
half a second later. The numbers that grow often are in the files of `shared_offsets.py`: the highest offset of each
board, and the versions of definitions and producers.

A store of one server has synced everything that it shows, so it must still have everything that clients saw. Where a
replica can be promoted, the store must still have what was acknowledged, but it may lack what was only shown.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import structlog

from live.errors import EpochLostError, SetupError
from live.store.connection.shared_offsets import Positions, SharedOffsets
from live.system.files import replacing, sync_folder

log = structlog.get_logger()

Versioned = Literal["definitions", "producers"]

_Change = Callable[["Facts"], dict[str, Any]]

# What is compared of the state of a board: `reign_from` is the offset at which the reign began.
COMPARED: Final = ("epoch", "offset", "reign", "reign_from")
_VERSION: Final = ":"  # the first character of the names of versions; ids of boards have no colon
_MOST_LOGGED: Final = 20  # boards whose losses get a line in the log each
_IDENTITY: Final = 24  # characters of a store's identity, enough to distinguish stores
_LOCK_TIMEOUT: Final = 0.5  # seconds; writing takes milliseconds, so a process that takes longer is frozen
_LOCK_POLL: Final = 0.002  # seconds
_MOST_TRIES: Final = 3  # several workers often write at the same moment; a process that holds the lock longer is frozen
_RESTART: Final = "another process accepted the loss of data: start this one again"


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A loss that an operator has accepted."""

    at: int  # seconds since 1970
    lost: str
    store: str
    boards: tuple[str, ...] | None = None  # the boards whose loss was accepted; None for the whole store


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The known facts about the store."""

    store: str = ""  # its identity; empty if it is not known yet
    keys_required: bool = False
    lost: str = ""  # a sentence about a loss of the whole store
    lost_boards: dict[str, str] = {}  # a sentence about the loss of each board
    accepted: tuple[Accepted, ...] = ()


class Earlier(NamedTuple):
    """What a process had acknowledged of a board when it met a reign."""

    epoch: str
    offset: int
    reign: str


class HighWater:
    """The high-water marks of one prefix of store keys, shared by all processes with the same data directory.

    It remembers and compares only while it is `active`. Only the processes of a server make it active, so a command
    that inspects a store never stops a server.
    """

    def __init__(self, folder: Path, prefix: str) -> None:
        self.path = folder / f"witness-{prefix}.json"
        self.active = False
        self.keeps_seen = True  # false if a replica can be promoted, which may lack what was only shown
        self.facts = Facts()
        self.offsets = SharedOffsets(folder, prefix)
        self.acknowledged: Positions = {}  # by this process
        # Boards that were not compared yet under the newest reign of their server.
        self.earlier: dict[str, Earlier] = {}
        self._lock_path = folder / f"witness-{prefix}.lock"
        self._read_at: tuple[int, int] | None = None
        self._accepting: list[_Change] | None = None  # the changes in the `with` block of `accepting`
        self._restart = False
        self._restart_boards: dict[str, str] = {}  # boards whose loss another process has accepted
        # Changes that wait because another process, which may be frozen, has locked the file.
        self._unwritten: list[_Change] = []
        self._tries = 0  # how often in a row `refresh` could not write them
        self.refresh()

    # What is known

    @property
    def lost(self) -> str:
        """Why nothing may be acknowledged on any board; empty if the store as a whole lost nothing."""
        return _RESTART if self._restart else self.facts.lost

    @property
    def lost_boards(self) -> dict[str, str]:
        """The boards on which nothing may be acknowledged, and why."""
        return self.facts.lost_boards | self._restart_boards

    def loss_of(self, board: str) -> str:
        """Return why nothing may be acknowledged on a board; empty if it lost nothing."""
        return self.lost or self._restart_boards.get(board) or self.facts.lost_boards.get(board, "")

    def loss_of_all(self, boards: Collection[str]) -> str:
        """Return why a process with these boards is not ready: the store or a board lost data. Empty if it is ready."""
        lost = self.lost_boards
        if self.lost or not boards or not all(board in lost for board in boards):
            return self.lost
        return "; ".join(lost[board] for board in boards)

    def require_no_loss(self, board: str = "") -> None:
        """Raise an error if the whole store, or the given board, lost data and no operator has accepted the loss."""
        if loss := self.loss_of(board):
            raise EpochLostError(loss)

    def offset_of(self, board: str, epoch: str | None) -> int:
        """Return the highest known offset of a board in an epoch; -1 if none is known."""
        return self.offsets.offset_of(board, epoch)

    def version_of(self, what: Versioned) -> int:
        """Return the highest known version; 0 if none is known."""
        return max(0, self.offsets.offset_of(_VERSION + what, self._generation))

    @property
    def _generation(self) -> str:
        """The generation of the store, for which a version is known as an offset is for an epoch.

        Another store has another generation, and so has a store after an operator accepts the loss of the whole store.
        """
        whole = sum(accepted.boards is None for accepted in self.facts.accepted)
        return f"{whole}:{self.facts.store[:_IDENTITY]}"

    @property
    def board_positions(self) -> Positions:
        """The known position of each board."""
        return {name: position for name, position in self.offsets.known.items() if not name.startswith(_VERSION)}

    def note(self, board: str, epoch: str, offset: int) -> None:
        """Remember a position of a board that was acknowledged, or that the store has synced."""
        if self.active:
            try:
                self.offsets.note(board, epoch, offset)
            except OSError as error:  # for example a full disk; events that were counted are still acknowledged
                log.error("positions can't be shared with other processes", reason=str(error))  # noqa: TRY400 - it says all

    def acknowledge(self, board: str, epoch: str, offset: int) -> None:
        """Remember a position that a client is about to receive."""
        self.note(board, epoch, offset)
        before = self.acknowledged.get(board)
        if before is None or before[0] != epoch or before[1] < offset:
            self.acknowledged[board] = (epoch, offset)

    def begin_reign(self, reign: str) -> None:
        """Remember that this process has acknowledged all its positions before the reign began.

        So a board has lost data if the reign began below its position, however far the board has come since.
        """
        self.earlier |= {board: Earlier(*position, reign) for board, position in self.acknowledged.items()}

    def note_version(self, what: Versioned, version: int) -> None:
        """Remember a version of the definitions or producers, as `note` remembers a position."""
        self.note(_VERSION + what, self._generation, version)

    # Facts from replies of the store

    def check_offset(self, board: str, epoch: str, offset: int, known: int) -> None:
        """Compare the offset of a board with the one that was `known` before the request.

        Remember the offset only if no replica can be promoted: it may lack changes that nobody acknowledged.
        """
        if offset < known:
            self.lose_boards({board: f"board {board} (epoch {epoch}) went back from offset {known} to {offset}"})
        elif self.keeps_seen:
            self.note(board, epoch, offset)

    def check_version(self, what: Versioned, found: str, known: int) -> None:
        """Compare a version with the one that was `known` before the request, as `check_offset` compares offsets."""
        version = int(found or 0)
        if version < known:
            self.lose(f"the {what} went back from version {known} to {version or 'none'}")
        elif self.keeps_seen:
            self.note_version(what, version)

    def compare_board(
        self, board: str, state: Sequence[bytes | None], reign: str, known: tuple[str, int], earlier: Earlier | None
    ) -> str:
        """Compare a board with what was `known` before its state was read. Describe its loss.

        `state` has the fields `COMPARED`, and `reign` is that of the server, empty if it is not known. A board that was
        not checked under this reign has lost nothing yet. Compare it again later.
        """
        epoch, offset, checked, began = ((word or b"").decode() for word in state)
        if reign not in ("", checked):
            return ""
        if reign and earlier is not None and self.earlier.get(board) is earlier:
            del self.earlier[board]
        found = int(offset or 0)
        if epoch == known[0] and found < known[1]:
            return f"board {board} (epoch {epoch}) went back from offset {known[1]} to {found}"
        if earlier is None or (epoch, checked) != (earlier.epoch, earlier.reign):
            return ""
        begun, before = int(began or found), earlier.offset
        lost = f"board {board} (epoch {epoch}) was at offset {begun} after a failover, and {before} was acknowledged"
        return lost if begun < before else ""

    def remember_store(self, identity: str) -> None:
        """Remember the identity of the store."""
        if self.active:
            self._change(lambda facts: {} if facts.store else {"store": identity})

    def require_keys(self) -> None:
        """Remember that the server requires API keys, so that it still does if the store loses them all."""
        if self.active and not self.facts.keys_required:
            self._change(_require_keys)

    def lose(self, reason: str) -> None:
        """Record a loss of the whole store: no process acknowledges anything until an operator decides."""
        if not self.active or self.lost or self._accepting is not None:
            return
        message = "data was lost; nothing is counted until an operator accepts the loss"
        log.error(message, reason=reason, known=self.describe(), choices=CHOICES.format(path=self.path))
        self._change(lambda facts: {"lost": facts.lost or reason})

    def lose_boards(self, reasons: Mapping[str, str], *, at_start: bool = False) -> None:
        """Record the losses of boards: no process acknowledges anything on them until an operator decides.

        With `at_start`, log the losses that were known before as well.
        """
        if not self.active or self.lost or self._accepting is not None:
            return
        new = {board: reason for board, reason in reasons.items() if not self.loss_of(board)}
        logged = dict(reasons) if at_start else new
        message = "the data of a board was lost; it takes no events until an operator decides, and other boards go on"
        for board in list(logged)[:_MOST_LOGGED]:
            choices = BOARD_CHOICES.format(board=board, path=self.path)
            log.error(message, board=board, reason=logged[board], choices=choices)
        if len(logged) > _MOST_LOGGED:
            log.error("more boards lost data", boards=len(logged) - _MOST_LOGGED, known=str(self.path))
        if new:
            self._change(lambda facts: {"lost_boards": {**new, **facts.lost_boards}})

    def describe(self) -> str:
        """Return the known boards, with their epochs and highest offsets."""
        known = sorted(self.board_positions.items())
        boards = [f"{board} (epoch {epoch}, offset {offset})" for board, (epoch, offset) in known]
        return ", ".join(boards) or "no board"

    # Files

    def refresh(self) -> None:
        """Read what other processes have written, and write the changes that wait. This is cheap if nothing changed.

        In a `with` block of `accepting`, do nothing: `accepting` reads the file when it ends.
        """
        if self._accepting is not None:
            return
        self._read_file()
        if self._unwritten:
            self._write_changes()
            self._tries = self._tries + 1 if self._unwritten else 0
            if self._tries >= _MOST_TRIES:
                log.error("facts about the store can't be written yet", reason=self._held)

    async def close(self) -> None:
        """Write the changes that are left, unless a frozen process has the lock. Close the file of positions."""
        until = time.monotonic() + _LOCK_TIMEOUT
        while self._unwritten and time.monotonic() < until:
            await asyncio.sleep(_LOCK_POLL)
            self._write_changes()
        self.offsets.close()

    def _read_file(self) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return
        at = (status.st_mtime_ns, status.st_ino)
        if at == self._read_at:
            return
        facts = self._stored()
        if self._read_at is not None and facts.accepted != self.facts.accepted:
            # Another process has accepted the loss, so the losses that this process knows are out of date.
            new = facts.accepted[len(self.facts.accepted) :]
            if any(accepted.boards is None for accepted in new):
                self._restart = True
                self._unwritten = [_require_keys] if self.facts.keys_required else []
            self._restart_boards |= {board: _RESTART for accepted in new for board in accepted.boards or ()}
        self._read_at, self.facts = at, _changed(facts, self._unwritten)

    def _stored(self) -> Facts:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Facts)
        except FileNotFoundError:
            return Facts()
        except (OSError, msgspec.DecodeError) as error:
            raise SetupError(
                f"can't read {self.path}, which tells whether the store lost data: {error}. "
                "Restore the file from a backup, or choose another --data-dir"
            ) from None

    # What an operator decides

    @contextmanager
    def accepting(self, reason: str, boards: Collection[str] | None = None) -> Iterator[None]:
        """Accept the store as it is, and record this when the `with` block ends. If the block fails, the loss stays.

        `boards` limits this to some boards. The other boards keep their positions and their losses, also
        those that another process records meanwhile.
        """
        before = self.facts
        changes = self._accepting = []
        self.facts = _accepted(before, boards)
        try:
            yield
            acceptance = Accepted(
                at=int(time.time()),
                lost=reason,
                store=before.store,
                boards=None if boards is None else tuple(sorted(boards)),
            )
            with self._locked(_LOCK_TIMEOUT):
                found = _changed(self._stored(), self._unwritten)
                found = msgspec.structs.replace(found, accepted=(*found.accepted, acceptance))
                self.facts = _changed(_accepted(found, boards), changes)
                self._write()
            self.offsets.forget(boards)
        except BaseException as error:
            self.facts = before
            if isinstance(error, TimeoutError):
                raise SetupError(str(error)) from None
            raise
        finally:
            self._accepting = None

    def end_losses(self, left: Collection[str]) -> None:
        """Record that the store holds the lost data again, except the data of the boards in `left`."""
        ended = _without(self.facts.lost_boards, left)
        for reason in filter(None, (self.facts.lost, *ended.values())):
            log.warning("the store holds the lost data again", reason=reason)
        if self.facts.lost or ended:
            self._change(lambda facts: {"lost": "", "lost_boards": _without(facts.lost_boards, ended)})

    def _change(self, change: _Change) -> None:
        """Change facts on top of what other processes have written; in a block of `accepting`, in memory only."""
        self.facts = _changed(self.facts, [change])
        if self._accepting is not None:
            self._accepting.append(change)
        else:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._unwritten.append(change)
            self._write_changes()

    def _write_changes(self) -> None:
        """Keep the changes for the next time if another process holds the lock, so that no event waits."""
        with suppress(TimeoutError), self._locked(timeout=0):
            self._read_file()
            self._write()

    @contextmanager
    def _locked(self, timeout: float) -> Iterator[None]:
        """Hold the lock, so that no other process writes; TimeoutError after `timeout` seconds."""
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + timeout
            while not _try_lock(lock):
                if time.monotonic() >= until:
                    raise TimeoutError(self._held)
                time.sleep(_LOCK_POLL)
            yield
        finally:
            os.close(lock)

    @property
    def _held(self) -> str:
        return f"another process holds {self._lock_path}: find it and end it"

    def _write(self) -> None:
        with replacing(self.path) as file:
            file.write(msgspec.json.encode(self.facts))
        sync_folder(self.path.parent)
        status = self.path.stat()
        self._read_at = (status.st_mtime_ns, status.st_ino)
        self._unwritten.clear()


def _changed(facts: Facts, changes: Sequence[_Change]) -> Facts:
    for change in changes:
        facts = msgspec.structs.replace(facts, **change(facts))
    return facts


def _accepted(facts: Facts, boards: Collection[str] | None) -> Facts:
    """Return the facts without what an acceptance of the loss of boards, or with None of the store, ends."""
    facts = msgspec.structs.replace(facts, lost_boards=_without(facts.lost_boards, boards))
    return msgspec.structs.replace(facts, store="", lost="") if boards is None else facts


def _without(texts: dict[str, str], boards: Collection[str] | None) -> dict[str, str]:
    return {} if boards is None else {board: text for board, text in texts.items() if board not in boards}


def _require_keys(_facts: Facts) -> dict[str, Any]:
    return {"keys_required": True}


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


CHOICES: Final = (
    "You have three choices. (1) Restore the lost data: start the right store, or restore a newer backup of it. Then "
    "start the server again. (2) Stop the server, and write what the journal has with `live recover --from journal`. "
    "(3) Stop the server, and accept the loss with `live recover --from store`: boards continue with the data in the "
    "store, and missing boards start empty. If you move to another store, stop the server, set LIVE_STORE, run `live "
    "recover --from journal`, and start the server. To begin there without the boards, choose another --data-dir. The "
    "server's notes on the store are in {path}"
)
BOARD_CHOICES: Final = (
    "You have three choices. (1) Restore the lost data of the board from a newer copy of the store, and start the "
    "server again. (2) If the board has a journal, stop the server, and write what the journal has with `live recover "
    "--from journal --board {board}`. (3) Stop the server, and accept the loss with `live recover --from store --board "
    "{board}`: the board continues with the data in the store, or starts empty. The server's notes on the store are in "
    "{path}"
)
