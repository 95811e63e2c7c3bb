"""From the bytes of a body to events, by its content type; unpacked within the bound that holds for what is sent."""

import zlib
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from live.domain.cloudevent import decode_batch, decode_structured
from live.domain.decoding import Steps, decode_json, decode_ndjson
from live.errors import ProblemError

Decoder: TypeAlias = Callable[[bytes, int], Steps]

_DECODERS: Final[dict[str, Decoder]] = {
    "application/json": decode_json,
    "application/x-ndjson": decode_ndjson,
    "application/cloudevents+json": lambda body, _most: decode_structured(body),
    "application/cloudevents-batch+json": decode_batch,
}
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_PIECE: Final = 4096  # bytes unpacked at a time: what is behind a member's end is copied, and there may be many
_MEMBERS: Final = 64  # pieces or members unpacked in one step
_UNPACKED: Final = 262_144  # bytes that one step unpacks, or a little more


def decoder_of(content_type: str) -> Decoder:
    """What reads bodies of a type.

    Raises:
        ProblemError: `unsupported_media_type`.
    """
    media_type, _, parameters = content_type.partition(";")
    decode = _DECODERS.get(media_type.strip().lower())
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if decode is None or charset not in {"", "utf-8", "utf8"}:
        wanted = ", ".join(_DECODERS)
        raise ProblemError("unsupported_media_type", f"send one of {wanted} in UTF-8, and name it in Content-Type")
    return decode


def is_packed(content_encoding: str) -> bool:
    """Whether a body is gzip.

    Raises:
        ProblemError: `unsupported_media_type`, when it is neither that nor plain.
    """
    encoding = content_encoding.strip().lower()
    if encoding not in {"", "identity", "gzip"}:
        raise ProblemError("unsupported_media_type", "send the body as it is, or with Content-Encoding: gzip")
    return encoding == "gzip"


def unpack(body: bytes, most: int) -> Generator[None, None, bytes]:
    """Unpack gzip, members one after another as RFC 1952 allows, no further than the bound; in steps.

    Raises:
        ProblemError: `malformed_body` or `body_too_large`.
    """
    unpacked = bytearray()
    position = pieces = done = 0
    try:
        while position < len(body):
            member = zlib.decompressobj(_GZIP_WINDOW)
            while not member.eof:
                piece = body[position : position + _PIECE]
                if not piece:
                    raise ProblemError("malformed_body", "the gzip body is cut short")
                unpacked += member.decompress(piece, most + 1 - len(unpacked))
                if len(unpacked) > most:
                    raise too_large(most)
                position += len(piece) - len(member.unused_data)
                pieces += 1
                if pieces % _MEMBERS == 0 or len(unpacked) - done > _UNPACKED:
                    done = len(unpacked)
                    yield
    except zlib.error as error:
        raise ProblemError("malformed_body", f"not gzip: {error}") from None
    return bytes(unpacked)


def too_large(most: int) -> ProblemError:
    """The refusal of a body of more than `most` bytes."""
    return ProblemError("body_too_large", f"the setting max_body allows {most} bytes, unpacked")
