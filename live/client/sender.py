"""What the commands that send events share: the server's address, the producer's key, and what its refusal means."""

from typing import Final
from urllib.parse import urlsplit

import msgspec

from live.domain.producer import parse_bearer
from live.errors import SetupError

KEY_REFUSED: Final = frozenset({401, 403})


class _Problem(msgspec.Struct):
    """The part of a problem that is shown to people."""

    detail: str = ""


def check_address(url: str) -> str:
    """The address of a server, without a slash at its end.

    Raises:
        SetupError: it is none.
    """
    try:
        parts = urlsplit(url)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        sound = False
    if not sound:
        raise SetupError(f"--to {url!r} is not an address such as http://127.0.0.1:8000")
    return url.rstrip("/")


def check_key(key: str | None) -> str | None:
    """A producer's key as it was given, without the white space of a file that it may come from.

    Raises:
        SetupError: it is no key; what it is instead is not repeated, for it may be a secret.
    """
    if key is None:
        return None
    key = key.strip()
    if parse_bearer(f"Bearer {key}".encode()) is None:
        raise SetupError("--key (or LIVE_KEY) is not of the form <id>.<secret>, as `live keys add` prints it")
    return key


def producer_of(key: str | None) -> str:
    """The public part of a key, the producer's id; empty without a key."""
    return "" if key is None else key.partition(".")[0]


def authorization(key: str | None) -> dict[str, str]:
    """The header fields that show a key."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def key_refused(status: int, body: bytes, key: str | None) -> SetupError:
    """What to say, and to do, about an answer of 401 or 403."""
    try:
        detail = msgspec.json.decode(body, type=_Problem).detail
    except (msgspec.DecodeError, UnicodeDecodeError):
        detail = ""
    producer = producer_of(key)
    if status == 403:  # noqa: PLR2004
        told = f"the server does not let {f'producer {producer!r}' if producer else 'you'} send events"
        advice = (
            f"`live keys add {producer or 'ID'} --verbs post`, run where the server's store is, makes a key that may"
        )
    elif key is None:
        told = "the server takes events from producers with a key only"
        advice = "set LIVE_KEY, or give --key ID.SECRET; `live keys add ID`, run where its store is, makes one"
    else:
        told = f"the server does not take this key of producer {producer!r}"
        advice = (
            f"`live keys list`, run where its store is, shows what keys there are, `live keys add {producer}` makes "
            "another; a new one is known within two seconds"
        )
    return SetupError(f"{told} ({status}{f': {detail}' if detail else ''}): {advice}")
