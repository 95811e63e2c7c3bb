"""The decoders, with all their steps run in one call."""

from live.domain import cloudevent, decoding
from live.domain.decoding import DecodedBody, finish


def decode_json(body: bytes, max_events: int) -> DecodedBody:
    """Decode one JSON object, or an array of objects."""
    return finish(decoding.decode_json(body, max_events))


def decode_ndjson(body: bytes, max_events: int) -> DecodedBody:
    """Decode one JSON object per line."""
    return finish(decoding.decode_ndjson(body, max_events))


def decode_structured(body: bytes) -> DecodedBody:
    """Decode one CloudEvent."""
    return finish(cloudevent.decode_structured(body))


def decode_batch(body: bytes, max_events: int) -> DecodedBody:
    """Decode an array of CloudEvents."""
    return finish(cloudevent.decode_batch(body, max_events))
