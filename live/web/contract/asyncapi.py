"""The messages of the WebSocket as AsyncAPI 3.0, `/asyncapi.json`, made from the structs that encode them."""

from functools import cache
from inspect import getdoc
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from live.errors import CLOSE_CODES
from live.fanout.frames import Alive, Around, Status, Sync, Update, Viewers
from live.fanout.subscription import WatchParameters
from live.ingest.replies import Reply
from live.web.contract.operations import INFO, parameters_of
from live.web.contract.schemas import components_of, reference
from live.web.http.responses import kept_json, negotiated

_MESSAGES: Final = {
    "sync": Sync,
    "update": Update,
    "status": Status,
    "viewers": Viewers,
    "around": Around,
    "alive": Alive,
}


async def get_asyncapi(request: Request) -> Response:
    """Read the AsyncAPI document.

    Returns the messages on sockets as AsyncAPI 3.0.
    """
    return negotiated(request, _reply())


@cache
def _reply() -> Reply:
    return kept_json(asyncapi_document())


@cache
def asyncapi_document() -> dict[str, Any]:
    """Make the document at `/asyncapi.json`."""
    final = ", ".join(f"{code} {close.reason}" for code, close in CLOSE_CODES.items() if not close.reconnect)
    asked = parameters_of(WatchParameters)
    query = {each["name"]: {**each["schema"], "description": each["description"]} for each in asked}
    return {
        "asyncapi": "3.0.0",
        "info": {
            **INFO,
            # AsyncAPI has no field `identifier` here
            "license": {"name": "MIT", "url": "https://opensource.org/license/mit"},
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
                "description": "A viewer receives a `sync`, then `update`s. Only private boards need an API key.",
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
