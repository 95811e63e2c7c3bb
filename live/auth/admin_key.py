"""The admin API key of a data directory, created once, so that you can create boards as soon as a server runs."""

import fcntl
import os
from collections.abc import Mapping
from typing import BinaryIO, Final

from live.domain.producer import SERVER, Scope, StoredProducer, digest_of, new_secret, parse_bearer
from live.errors import SetupError
from live.settings import Settings
from live.store.connection.client import connect
from live.store.registry.audit_trail import AuditTrail, entry_of
from live.store.registry.producers import ProducerStore

ID: Final = "admin"
FILE: Final = "admin-key"  # in the data directory, readable by its owner only


async def provide_admin_key(settings: Settings) -> str | None:
    """Return the admin API key, `<id>.<secret>`. Create this API key if the store has no API key yet.

    Return None if only other API keys exist, or if the file has no secret that is still valid. A revoked admin API key
    is not created again.

    Raises:
        SetupError: the data directory can't be read or written.
    """
    client = connect(settings.store, settings)
    path = settings.data_dir / FILE
    try:
        producers = ProducerStore(client, settings.key_prefix)
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
                    await AuditTrail(client, settings.key_prefix).add(added)
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
    """Read the secret in a file. Return None if the file has no valid API key."""
    key = parse_bearer(b"Bearer " + file.read(1024).strip())
    return key[1].decode() if key is not None and key[0] == ID else None
