"""The routes of producers in the OpenAPI document."""

from typing import Final

from live.domain.cloudevent import CloudEvent
from live.domain.event import Event
from live.errors import REFUSALS
from live.ingest.posting import Answer
from live.web.contract.operations import (
    ASKING,
    KEYED,
    POSTING,
    TEXT,
    document,
    done,
    json_of,
    operation,
    parameter,
)
from live.web.contract.schemas import Json, listed, reference

_BINARY: Final = "An attribute of a CloudEvent in binary mode, percent-encoded. {} in this mode. {}"
_BODIES: Final = """The `Content-Type` selects the form of the body:

- `application/json`: one event, or an array of them.
- `application/x-ndjson`: one event on each line.
- `application/cloudevents+json`: one CloudEvent.
- `application/cloudevents-batch+json`: an array of CloudEvents.

With `ce-…` headers, the request is a CloudEvent in binary mode, and the body may have any type.
Each form may use `Content-Encoding: gzip`."""


def post_events(cloudevent: Json) -> Json:
    """Posts events. `cloudevent` is the schema of a CloudEvent."""
    event, structured = reference(Event), reference(CloudEvent)
    once = parameter(
        "Idempotency-Key", "header", {"type": "string", "minLength": 1, "maxLength": 255},
        "Requests with the same value and body return the same response and count once. Another body is refused.",
    )  # fmt: skip
    attributes = [
        parameter(
            f"ce-{name}", "header", {"type": "string"},
            _BINARY.format("Required" if name in cloudevent["required"] else "Optional", schema["description"]),
        )
        for name, schema in cloudevent["properties"].items()
    ]  # fmt: skip
    post = operation(
        "postEvents", "events", "Post events.",
        "The server responds after the store has synced the events to disk. A wrong event is refused by its index; the "
        "others count.\n\n"
        f"These codes say why an event is refused:\n\n{listed(REFUSALS)}",
        document(Answer), POSTING, once, *attributes, security=KEYED,
    )  # fmt: skip
    # Of several JSON types with arrays, generators make code that can't tell them apart: so CloudEvents are one range.
    post["requestBody"] = {
        "required": True,
        "description": _BODIES,
        "content": {
            **json_of({"anyOf": [event, {"type": "array", "items": event}]}),
            "application/x-ndjson": {"schema": {"type": "string", "description": "One event on each line."}},
            "application/*": {"schema": {"anyOf": [structured, {"type": "array", "items": structured}]}},
        },
    }
    return post


def greet_webhook() -> Json:
    """The CloudEvents webhook handshake."""
    headers = [
        parameter("WebHook-Request-Origin", "header", {"type": "string"}, "A DNS name, or an origin."),
        parameter("WebHook-Request-Rate", "header", {"type": "integer", "minimum": 1}, "Requests per minute."),
        parameter("WebHook-Request-Callback", "header", {"type": "string"}, "Never called."),
    ]
    rate = {"type": "string", "pattern": r"^([1-9][0-9]*|\*)$"}
    granted = {
        "Allow": TEXT,
        "WebHook-Allowed-Origin": {
            "description": "The requested origin. Without this header, the request is not granted.",
            **TEXT,
        },
        "WebHook-Allowed-Rate": {"description": "Requests per minute; `*` means no limit.", "schema": rate},
    }
    return operation(
        "greetWebHook", "events", "Answer a webhook handshake.",
        "The CloudEvents webhook handshake. It grants no access: events still need an API key.",
        done(200, "The headers say what is granted.", granted), ASKING, *headers,
    )  # fmt: skip
