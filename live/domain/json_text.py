"""Finds the values in a JSON text without decoding them, in steps of bounded work. No I/O."""

import json
from collections.abc import Generator, Iterator
from itertools import count
from typing import AnyStr, Final

from live.domain.event import MAX_DETAIL
from live.errors import ProblemError

STEP: Final = 64  # elements per step
MOST_EVENT: Final = 65_536  # bytes or characters of one event among several; valid events are far smaller
SPACE: Final = " \t\r\n"
_SHORT: Final = 2048  # characters; most events are shorter


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Checks only the grammar. Numbers stay text, so that no long integer is ever computed.
_grammar = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)


def split(body: bytes) -> Iterator[str | None]:
    """The elements of a JSON array as text, and None after each step. Only the grammar is checked.

    Raises:
        ProblemError: `malformed_body`.
    """
    text = text_of(body).strip(SPACE)
    position = yield from past_blank(text, 1)
    last = len(text) - 1
    if position == last and text[last] == "]":
        return
    done = position
    for number in count(1):
        end = _parse_within(text, position)
        yield text[position:end]
        if number % STEP == 0 or end - done > MOST_EVENT:
            done = end
            yield None
        position = yield from past_blank(text, end)
        if position == last and text[last] == "]":
            return
        if text[position : position + 1] != ",":
            raise ProblemError("malformed_body", f"JSON is malformed: `,` or `]` is missing at character {position}")
        position = yield from past_blank(text, position + 1)


def _parse_within(text: str, position: int) -> int:
    """The end of the array element that begins at `position`, parsed in pieces of bounded size."""
    for size in (_SHORT, MOST_EVENT):
        piece = text[position : position + size]
        whole = position + size >= len(text)
        try:
            end = _grammar.raw_decode(piece)[1]
        except RecursionError:
            raise ProblemError("malformed_body", "JSON is nested too deeply") from None
        except ValueError as error:
            if whole:
                raise _malformed(error, text, position) from None
            continue
        if end < size or whole:  # otherwise a number could continue
            return position + end
    detail = f"JSON is malformed, or an event is longer than {MOST_EVENT:,} characters: at character {position}"
    raise ProblemError("malformed_body", detail)


def end_of_value(text: str, position: int) -> int:
    """The end of the JSON value that begins at `position`.

    Raises:
        ProblemError: `malformed_body`.
    """
    try:
        return _grammar.raw_decode(text, position)[1]
    except RecursionError:
        raise ProblemError("malformed_body", "JSON is nested too deeply") from None
    except ValueError as error:
        raise _malformed(error, text, 0) from None


def _malformed(error: ValueError, text: str, start: int) -> ProblemError:
    """The problem for a mistake in the part of a text that begins at `start`."""
    if isinstance(error, json.JSONDecodeError):
        error = json.JSONDecodeError(error.msg, text, start + error.pos)
    return ProblemError("malformed_body", f"JSON is malformed: {error}"[:MAX_DETAIL])


def past_blank(text: AnyStr, position: int) -> Generator[None, None, int]:
    """The position of the next character that is not a space. Each long piece of spaces takes one step."""
    while text[position : position + 1].isspace():
        piece = text[position : position + MOST_EVENT]
        left = piece.lstrip(SPACE if isinstance(piece, str) else SPACE.encode())
        position += len(piece) - len(left)
        if left:
            break
        yield
    return position


def text_of(body: bytes) -> str:
    """The text of a body.

    Raises:
        ProblemError: `malformed_body`, because the body is not UTF-8.
    """
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise ProblemError("malformed_body", f"not UTF-8: byte {error.start} can't be read") from None
