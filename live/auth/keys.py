"""API keys: adds and revokes them, with their entries in the audit log, for commands and for the admin page.

A data directory gets an admin API key once, so that you can create boards as soon as a server runs.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Final, get_args

from msgspec import UNSET

from live.domain.choices import BOARD_ID
from live.domain.event import rfc3339
from live.domain.producer import ALL, SERVER, Scope, StoredProducer, Verb, digest_of, new_secret, parse_bearer
from live.domain.text import text_fault, unknown
from live.domain.window import parse_duration
from live.errors import NotFoundError, SetupError
from live.settings import Settings
from live.store.connection.client import Store, connect
from live.store.registry.audit_trail import AuditTrail, entry_of
from live.store.registry.producers import ProducerStore, refused_name

VERBS: Final[tuple[Verb, ...]] = get_args(Verb)

_MOST_SOURCE: Final = 64  # characters
_NO_USES: Final[Mapping[str, int]] = {}


def board_faults(field: str, boards: Iterable[str]) -> Iterator[str]:
    """Find what is wrong with ids and prefixes of boards. Each sentence begins with the name of the field."""
    for board in boards:
        if board != ALL and not BOARD_ID.fullmatch(board.removesuffix(ALL)):
            yield f"{field}: {board!r} is neither a valid board id nor a prefix such as acme-*"


def scope_faults(scope: Scope) -> Iterator[str]:
    """Find what is wrong with a scope. Each sentence begins with the name of a field."""
    yield from board_faults("boards", scope.boards or ())
    for verb in scope.verbs or ():
        if verb not in VERBS:
            yield f"verbs: unknown verb {verb!r}; expected {', '.join(VERBS)}"
    rate = scope.rate
    if rate is not UNSET and rate != 0 and not 0.001 <= rate <= 1e9:  # noqa: PLR2004 - also refuses NaN
        yield "rate must be a number from 0.001 to 1000000000, or 0 for no limit"
    for source in scope.sources or ():
        if len(source) > _MOST_SOURCE:
            yield f"types: {source!r} is longer than {_MOST_SOURCE} characters"
        elif fault := text_fault(source):
            yield f"types: {source!r} {fault}"


def end_of(length: str) -> int | None:
    """Return the end of an API key that is valid for `length` from now, in seconds since 1970; None for `never`.

    The message about any other text begins with `for`.
    """
    if length == "never":
        return None
    try:
        return int(time.time() + parse_duration(length))
    except ValueError:
        raise ValueError(f"for {length!r} is neither a length of time such as 30d nor `never`") from None


async def add_key(client: Store, who: str, producer: str, scope: Scope) -> tuple[StoredProducer, str]:
    """Create an API key, or add a second secret to it. Return its record and the secret."""
    producers = ProducerStore(client)
    before = (await producers.load()).records.get(producer)
    added, secret = await producers.add(producer, scope)
    held = None if before is None else key_view(before)
    await AuditTrail(client).add(entry_of(who, "key_added", key=producer, before=held, after=key_view(added)))
    return added, secret


async def revoke_key(client: Store, who: str, producer: str, fingerprint: str | None) -> StoredProducer:
    """Revoke one secret of an API key, or all its secrets."""
    producers = ProducerStore(client)
    known = (await producers.load()).records
    if producer not in known:
        raise NotFoundError(unknown("producer", producer, known))
    revoked = await producers.revoke(producer, fingerprint)
    before, after = key_view(known[producer]), key_view(revoked)
    await AuditTrail(client).add(entry_of(who, "key_revoked", key=producer, before=before, after=after))
    return revoked


def key_view(record: StoredProducer, uses: Mapping[str, int] = _NO_USES) -> dict[str, Any]:
    """Return the public parts of an API key. `uses` is the result of `ProducerStore.last_uses`."""
    return {
        "id": record.id,
        "boards": record.boards,
        "verbs": record.verbs,
        "rate": record.rate,
        "burst": record.burst,
        "max_amount": record.max_amount,
        "types": record.sources,
        "secrets": [
            {
                "fingerprint": secret.fingerprint,
                "created": time_words(secret.created),
                "used": time_words(uses.get(secret.fingerprint)),
            }
            for secret in record.secrets
        ],
        "refused": uses.get(refused_name(record.id), 0),
        "created": time_words(record.created),
        "revoked": time_words(record.revoked),
        "expires": time_words(record.expires),
    }


def time_words(seconds: int | None) -> str | None:
    """Write a time, given in seconds since 1970, in the form of RFC 3339. Return None for None."""
    return None if seconds is None else rfc3339(seconds, 1, "seconds")


ID: Final = "admin"
FILE: Final = "admin-key"  # in the data directory, readable by its owner only


async def provide_admin_key(settings: Settings) -> str | None:
    """Return the admin API key, `<id>.<secret>`. Create this API key if the store has no API key yet.

    Return None if only other API keys exist, or if the file has no secret that is still valid. A revoked admin API key
    is not created again.
    """
    client = connect(settings.store, settings)
    path = settings.data_dir / FILE
    try:
        producers = ProducerStore(client)
        records = (await producers.load()).records
        if _is_missing(records):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, 0o600), "rb+") as file:
                # If two servers start at the same time, only one of them creates the API key.
                fcntl.flock(file, fcntl.LOCK_EX)
                records = (await producers.load()).records
                if _is_missing(records):
                    secret = _secret_in(file)
                    if secret is None:
                        # Write the file first, because a secret that exists only in the store is useless.
                        secret = new_secret()
                        file.seek(0)
                        file.truncate()
                        file.write(f"{ID}.{secret}\n".encode())
                        file.flush()
                        os.fsync(file.fileno())
                    records = {ID: (await producers.add(ID, Scope(verbs=("admin",)), secret))[0]}
                    added = entry_of(SERVER, "key_added", key=ID, after={"verbs": ["admin"]})
                    await AuditTrail(client).add(added)
        secret = None
        if ID in records and path.exists():
            with path.open("rb") as file:
                secret = _secret_in(file)
    except OSError as error:
        raise SetupError(f"can't store the admin API key in {path.resolve()}: {error.strerror}") from None
    else:
        if secret is None:
            return None
        is_accepted = "admin" in records[ID].verbs and digest_of(secret.encode()) in records[ID].digests
        return f"{ID}.{secret}" if is_accepted else None
    finally:
        await client.aclose()


def _is_missing(records: Mapping[str, StoredProducer]) -> bool:
    return ID not in records and not any(record.secrets for record in records.values())


def _secret_in(file: BinaryIO) -> str | None:
    key = parse_bearer(b"Bearer " + file.read(1024).strip())
    return key[1].decode() if key is not None and key[0] == ID else None
