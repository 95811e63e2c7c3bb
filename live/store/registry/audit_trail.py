"""The audit log in the store: the actions of administrators, by requests and commands."""

import getpass
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Annotated, Any, Final

import msgspec

from live.domain.meaning import says
from live.domain.producer import SERVER
from live.store.connection.client import Store
from live.store.connection.scripts import Script, Text, text

MOST_ENTRIES: Final = 10_000
"""About how many entries the store keeps. The journal in SQL keeps all entries."""

MOST_BYTES: Final = 16_384
"""The maximum size of an entry's JSON. In a larger entry, its size in bytes replaces the values before and after."""


class NoteRequest(msgspec.Struct):
    """Add an entry (JSON) to the audit log, and keep about `length` entries."""

    length: int
    entry: Text


class RedactRequest(msgspec.Struct):
    """Replace the entries whose ids are `names` by `entries` (JSON)."""

    names: list[str]
    entries: list[Text]


NOTE: Final = Script("note", NoteRequest)
REDACT: Final = Script("redact", RedactRequest)

OF_MEMBERS: Final = frozenset(
    ["registered", "withdrawn", "hidden", "shown", "corrected", "titled", "untitled", "merged", "renamed", "begun",
     "voided", "repaired"]
)  # fmt: skip
"""The acts that concern members. Entries of an erased member have no `key` any more."""


class ActOrigin(msgspec.Struct, frozen=True):
    """The origin of an action: the address of the client, and its `X-Request-Id`. A command has neither."""

    address: str = ""
    request: str = ""


ORIGIN: Final[ContextVar[ActOrigin]] = ContextVar("ORIGIN")
"""The origin of what this task does. The routes of administrators set it."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action of an administrator."""

    at: Annotated[int, says("Time of the action, in milliseconds since 1970.")] = 0
    who: Annotated[str, says("Id of an API key, `anonymous`, `server`, or `command:` and the user of a command.")]
    what: Annotated[str, says("What was done.")]
    board: Annotated[str, says("Id of the board. Omitted for actions that do not belong to a single board.")] = ""
    key: Annotated[str, says("The member or the API key that was changed. Omitted for other actions.")] = ""
    address: Annotated[str, says("Address of the client. Omitted for commands.")] = ""
    request: Annotated[str, says("The `X-Request-Id` of the request. Omitted without one.")] = ""
    reason: Annotated[
        str, says("Why, in the words of the administrator. Omitted if the administrator gave no reason.")
    ] = ""
    before: Annotated[Any, says("The values before the action. Omitted if there were none.")] = None
    after: Annotated[Any, says("The values after the action. Omitted if there are none.")] = None


def entry_of(who: str, what: str, **fields: Any) -> AuditEntry:  # noqa: ANN401 - the fields of an entry
    """Make an entry for an action of this task. An action of the server itself has no origin."""
    origin = ActOrigin() if who == SERVER else ORIGIN.get(ActOrigin())
    return AuditEntry(who=who, what=what, address=origin.address, request=origin.request, **fields)


class AuditTrail:
    """The audit log of one key prefix."""

    def __init__(self, client: Store) -> None:
        self._client = client
        self._key = client.system.trail

    async def add(self, entry: AuditEntry) -> None:
        """Add an entry."""
        await NOTE(self._client, [self._key], NoteRequest(MOST_ENTRIES, text(encode(entry))))

    async def after(self, name: str) -> list[AuditEntry]:
        """Return the entries after the entry with this id, oldest first."""
        found = await self._client.call(self._key, "XRANGE", self._key, f"({name}", "+")
        return [decode(entry, fields) for entry, fields in found]

    async def redact(self, gone: Callable[[str], bool]) -> int:
        """Take the members for which `gone` is true out of the entries. Return how many entries have changed."""
        names, entries = list[str](), list[Text]()
        for name, fields in await self._client.call(self._key, "XRANGE", self._key, "-", "+"):
            entry = decode(name, fields)
            left = redacted(entry, gone)
            if left is not entry:
                names.append(name.decode())
                entries.append(text(msgspec.json.encode(left)))
        if names:
            await REDACT(self._client, [self._key], RedactRequest(names, entries))
        return len(names)

    async def last(self, limit: int) -> list[AuditEntry]:
        """Return the last entries, newest first."""
        return [
            decode(name, fields)
            for name, fields in await self._client.call(self._key, "XREVRANGE", self._key, "+", "-", "COUNT", limit)
        ]


def encode(entry: AuditEntry) -> bytes:
    """Encode an entry. If it is too large, its size replaces the values before and after."""
    data = msgspec.json.encode(entry)
    if len(data) > MOST_BYTES:
        data = msgspec.json.encode(msgspec.structs.replace(entry, before=None, after={"bytes": len(data)}))
    return data


def digest_of_person(name: str, whom: str) -> dict[str, str]:
    """Return a salted digest of a person for the audit log. Whoever knows the name can find the entry."""
    salt = secrets.token_hex(16)
    return {f"{whom}_sha256": hashlib.sha256(f"{salt}{name}".encode()).hexdigest(), "salt": salt}


def without_members(found: Iterable[msgspec.Struct]) -> dict[str, Any]:
    """Return the results of boards for the audit log, without their `examples`, which name members."""
    boards: list[dict[str, Any]] = msgspec.to_builtins(list(found))
    return {"boards": [{name: field for name, field in one.items() if name != "examples"} for one in boards]}


async def note_command(client: Store, what: str, **fields: Any) -> None:  # noqa: ANN401 - of an entry
    """Add an entry for the action of a command, with the user who runs it."""
    await AuditTrail(client).add(entry_of(command_user(), what, **fields))


@asynccontextmanager
async def acting(
    trail: AuditTrail,
    who: str,
    what: str,
    before: Any,  # noqa: ANN401 - of an entry
    **fields: Any,  # noqa: ANN401
) -> AsyncIterator[dict[str, Any]]:
    """Add an entry when an action of many steps begins, and another with the fields that the caller fills in.

    An interrupted action leaves only the first entry.
    """
    await trail.add(entry_of(who, "begun", **fields, before=before, after={"act": what}))
    found: dict[str, Any] = {"before": before}
    yield found
    await trail.add(entry_of(who, what, **fields, **found))


@asynccontextmanager
async def command_acting(
    client: Store,
    what: str,
    before: Any = None,  # noqa: ANN401 - of an entry
    *,
    dry: bool = False,
    **fields: Any,  # noqa: ANN401
) -> AsyncIterator[dict[str, Any]]:
    """Add the entries of `acting` for a command, unless it changes nothing because it is `dry`."""
    if dry:
        yield {}
        return
    async with acting(AuditTrail(client), command_user(), what, before, **fields) as entry:
        yield entry


def command_user() -> str:
    """Return the user who runs a command, as `AuditEntry.who` has it."""
    try:
        return f"command:{getpass.getuser()}"
    except (KeyError, OSError):  # the user of a container may have no name
        return "command"


def redacted(entry: AuditEntry, gone: Callable[[str], bool]) -> AuditEntry:
    """Return an entry without erased members, or the same entry if it names none of them."""
    if entry.what not in OF_MEMBERS:
        return entry
    if entry.key and gone(entry.key):
        return msgspec.structs.replace(entry, key="", reason="", before=None, after=None)
    before, after = _without(entry.before, gone), _without(entry.after, gone)
    if (before, after) == (entry.before, entry.after):
        return entry
    return msgspec.structs.replace(entry, reason="", before=before, after=after)


def _without(value: Any, gone: Callable[[str], bool]) -> Any:  # noqa: ANN401 - decoded JSON
    """Drop the fields and items of erased members, and empty their names."""
    match value:
        case dict():
            fields = {name: _without(field, gone) for name, field in value.items() if not gone(name)}
            return None if isinstance(value.get("key"), str) and gone(value["key"]) else fields
        case list():
            return [_without(one, gone) for one in value]
        case str():
            return "" if gone(value) else value
    return value


def decode(name: bytes, fields: list[bytes]) -> AuditEntry:
    """Decode an entry of the stream. Its only field has the entry as JSON."""
    at = int(name.partition(b"-")[0])
    return msgspec.structs.replace(msgspec.json.decode(fields[1], type=AuditEntry), at=at)
