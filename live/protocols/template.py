"""A head that comes again: most producers send every request with the same bytes but for the length of its body.

Where these bytes have been parsed, judged and found good once, there is nothing to parse in their copies: a whole
request is told by comparing. What differs in anything but the digits of its length goes through the parser.
"""

import hmac
import re
from typing import Final

from live.ingest.intake import Head

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r\n", re.IGNORECASE)
_END: Final = b"\r\n\r\n"
_MOST_DIGITS: Final = 9


class Template:
    """The bytes of a head around the digits of its length, what they mean, and for how long that is so."""

    __slots__ = ("_after", "_before", "generation", "head")

    def __init__(self, before: bytes, after: bytes, head: Head, generation: int) -> None:
        self._before = before
        self._after = after
        self.head = head
        self.generation = generation

    @classmethod
    def of(cls, request: bytes, head: Head, generation: int) -> "Template | None":
        """The template of one whole request that was taken in; None when it tells no length."""
        end = request.find(_END) + len(_END)
        length = _LENGTH.search(request, 0, end)
        return length and cls(request[: length.start(1)], request[length.end(1) : end], head, generation)

    def body_of(self, data: bytes) -> bytes | None:
        """The body of a whole request of this head; None when the bytes are anything else.

        Compared in constant time, for there is a secret in it: a proxy may send others' requests on this connection.
        """
        start = len(self._before)
        end = data.find(b"\r\n", start, start + _MOST_DIGITS + 2)
        digits = data[start:end]
        body = end + len(self._after)
        if end < 0 or not digits.isdigit() or len(data) - body != int(digits):
            return None
        same = hmac.compare_digest(data[:start], self._before) & hmac.compare_digest(data[end:body], self._after)
        return data[body:] if same else None
