"""The messages of the WebSocket as AsyncAPI 3.0, made from the structs that encode them."""

from functools import cache
from inspect import getdoc
from typing import Any, Final

from live.errors import CLOSE_CODES
from live.fanout.frames import Alive, Around, Replay, Status, Sync, Update, Viewers
from live.web.contract.openapi import INFO, WATCHED
from live.web.contract.schemas import components_of, reference

_MESSAGES: Final = {
    "sync": Sync,
    "update": Update,
    "status": Status,
    "viewers": Viewers,
    "around": Around,
    "alive": Alive,
    "replay": Replay,
}


@cache
def asyncapi_document() -> dict[str, Any]:
    """The document at `/asyncapi.json`."""
    final = ", ".join(f"{code} {close.reason}" for code, close in CLOSE_CODES.items() if not close.reconnect)
    query = {name: {**schema, "description": meaning} for name, (schema, meaning) in WATCHED.items()}
    return {
        "asyncapi": "3.0.0",
        "info": {
            **INFO,
            "license": {"name": "MIT", "url": "https://opensource.org/license/mit"},  # it knows no `identifier`
            "tags": [{"name": "live", "description": "Watch boards."}],
        },
        "channels": {
            "boardLive": {
                "address": "/v1/boards/{board}/live",
                "description": f"Reconnect after any close except these: {final}.",
                "parameters": {"board": {"description": "Id of a board."}},
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _MESSAGES},
                "bindings": {"ws": {"method": "GET", "query": {"type": "object", "properties": query}}},
            },
        },
        "operations": {
            "watchBoard": {
                "action": "send",
                "description": "A viewer receives a `sync`, then `update`s. No API key is needed.",
                "channel": {"$ref": "#/channels/boardLive"},
                "messages": [{"$ref": f"#/channels/boardLive/messages/{name}"} for name in _MESSAGES],
            },
        },
        "components": {
            # The summary is the first paragraph of the docstring; the schema has all of it.
            "messages": {
                name: {"summary": (getdoc(kind) or "").partition("\n\n")[0], "payload": reference(kind)}
                for name, kind in _MESSAGES.items()
            },
            "schemas": components_of(_MESSAGES.values()),
        },
    }
