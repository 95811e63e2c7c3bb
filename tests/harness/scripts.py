"""The scripts of the store, by name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

import live.store
from live.settings import Settings
from live.store.board.journal_stream import TRIM
from live.store.board.manage.erasure import ERASE, FORGET
from live.store.board.manage.lifecycle import DELETE_KEYS, EXPIRE_BOARD, RENEW, UPDATE
from live.store.board.manage.mending import FENCE, MEND
from live.store.board.manage.swap import LOAD, PAUSE, SWAP
from live.store.board.pieces import PIECE
from live.store.board.reign import CONFIRM
from live.store.board.requests import SCRIPTS
from live.store.connection.client import Store, connect
from live.store.connection.scripts import Script
from live.store.registry.audit_trail import NOTE, REDACT
from live.store.registry.definitions import CHANGES, DEFINE
from live.store.registry.items import DELETE_ITEM, PUT_ITEMS
from live.store.registry.presence import PRESENT, VIEWERS
from live.store.registry.processes import BEAT
from live.store.registry.producers import REGISTER
from live.store.registry.rate_credit import GCRA
from live.store.registry.sessions import SESSION

FOLDER = Path(live.store.__file__).parent / "lua"
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.lua"))}
PARTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((FOLDER / "lib").glob("*.lua"))}
BEGINNINGS = (UPDATE, EXPIRE_BOARD, DELETE_KEYS, RENEW, DEFINE, CHANGES, TRIM, PIECE, ERASE, FORGET, CONFIRM)
OTHERS = (
    BEAT,
    FENCE,
    REGISTER,
    GCRA,
    PRESENT,
    PUT_ITEMS,
    DELETE_ITEM,
    VIEWERS,
    LOAD,
    MEND,
    NOTE,
    PAUSE,
    REDACT,
    SESSION,
    SWAP,
)
USED = {script.name: script for script in (*msgspec.structs.astuple(SCRIPTS), *BEGINNINGS, *OTHERS)}
GOOD = "-- Does it.\n-- KEYS a — hash: it\n-- Request: Plain\n-- Returns {'ok'}\nreturn {KEYS[1]}\n"

FLAGS = {
    "#!lua": {
        *("add", "adopt", "baseline", "create", "enter", "gcra", "load", "mend", "put_items"),
        "swap",
    },
    "#!lua flags=no-writes": {"changes", "contestants", "piece", "places", "read", "slots", "viewers"},
    # These scripts free memory, or operators need them to free memory, or they only replace one field with another.
    "#!lua flags=allow-oom": {
        *(
            "beat",
            "confirm",
            "define",
            "delete_item",
            "delete_keys",
            "discard",
            "erase",
            "expire_board",
            "expire_events",
            "fence",
            "forget",
            "hide",
            "note",
            "open",
            "pause",
            "present",
            "redact",
            "register",
            "renew",
        ),
        *("rotate", "rotate_period", "session", "touch", "trim", "update", "withdraw"),
    },
}


class Plain(msgspec.Struct):
    """A request with one field."""

    word: str = ""


@asynccontextmanager
async def connected(url: str, settings: Settings) -> AsyncIterator[Store]:
    """A client of a store."""
    client = connect(url, settings)
    try:
        yield client
    finally:
        await client.aclose()


def under(script: Script[Any]) -> Script[Any]:
    """A script that runs under another reign than that of its server."""
    return Script(script.name, script.request, script.source, waits=script.waits, reign="another reign")


def code_of(source: str) -> str:
    """A script without its comments."""
    return "\n".join(line.split("--")[0] for line in source.splitlines())
