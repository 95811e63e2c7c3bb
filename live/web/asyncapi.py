"""The messages of the WebSockets as AsyncAPI 3.0, made from the structs that decode and encode them."""

from collections.abc import Iterable
from functools import cache
from inspect import getdoc
from typing import Any, Final

from live.domain.event import Event
from live.errors import CLOSE_CODES
from live.fanout.frames import Alive, Around, Replay, Status, Sync, Update, Viewers
from live.ingest.posting import Answer
from live.ingest.replies import ProblemBody
from live.web.openapi import INFO, WATCHED
from live.web.schemas import components_of, reference

_TO_VIEWERS: Final = {
    "sync": Sync,
    "update": Update,
    "status": Status,
    "viewers": Viewers,
    "around": Around,
    "alive": Alive,
    "replay": Replay,
}
_FROM_PRODUCERS: Final = {"event": Event}
_TO_PRODUCERS: Final = {"answer": Answer, "problem": ProblemBody}
_MESSAGES: Final = {**_TO_VIEWERS, **_FROM_PRODUCERS, **_TO_PRODUCERS}


@cache
def asyncapi_document() -> dict[str, Any]:
    """The document at `/asyncapi.json`."""
    payloads: dict[str, Any] = {
        name: {"summary": _summary_of(kind), "payload": reference(kind)} for name, kind in _MESSAGES.items()
    }
    payloads["events"] = {
        "summary": "Several events. They get one response.",
        "payload": {"type": "array", "items": payloads["event"]["payload"]},
    }
    return {
        "asyncapi": "3.0.0",
        "info": INFO,
        "channels": {
            "boardLive": _channel(
                "/v1/boards/{board}/live",
                _TO_VIEWERS,
                {name: {**schema, "description": meaning} for name, (schema, meaning) in WATCHED.items()},
                {"board": {"description": "Id of a board."}},
            ),
            "eventsLive": _channel("/v1/events/live", [*_FROM_PRODUCERS, "events", *_TO_PRODUCERS]),
        },
        "operations": {
            "watchBoard": _operation("send", "boardLive", _TO_VIEWERS),
            "takeEvents": {
                **_operation("receive", "eventsLive", [*_FROM_PRODUCERS, "events"]),
                "reply": {
                    "channel": {"$ref": "#/channels/eventsLive"},
                    "messages": _references("channels/eventsLive/messages", _TO_PRODUCERS),
                },
            },
        },
        "components": {"messages": payloads, "schemas": components_of(_MESSAGES.values())},
    }


def _summary_of(kind: type) -> str:
    """The first paragraph of a docstring; the schema has all of it."""
    return (getdoc(kind) or "").partition("\n\n")[0]


def _channel(
    address: str,
    messages: Iterable[str],
    query: dict[str, Any] | None = None,
    parameters: dict[str, Any] | None = None,
) -> dict[str, Any]:
    final = ", ".join(f"{code} {close.reason}" for code, close in CLOSE_CODES.items() if not close.reconnect)
    return {
        "address": address,
        "description": f"Reconnect after any close except these: {final}.",
        "parameters": parameters or {},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {"ws": {"method": "GET", "query": {"type": "object", "properties": query or {}}}},
    }


def _operation(action: str, channel: str, messages: Iterable[str]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": _references(f"channels/{channel}/messages", messages),
    }


def _references(place: str, names: Iterable[str]) -> list[dict[str, str]]:
    return [{"$ref": f"#/{place}/{name}"} for name in names]
