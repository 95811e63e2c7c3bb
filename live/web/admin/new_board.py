"""The page for a new board: a form with the common choices of a definition, and a field for all other choices as TOML.

The form is a request to the API. A mistake names its choice as the label of the field does.
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from live.domain.choices import BOARD_ID
from live.domain.text import ID_FORM
from live.errors import ProblemError
from live.web.admin.admin_page import AdminPage, ApiCall, Desk, Form, board_path

WINDOWS: Final[Mapping[str, Any]] = {
    "day": {"calendar": "day"},
    "week": {"calendar": "week"},
    "month": {"calendar": "month"},
    "year": {"calendar": "year"},
    "last_hour": {"rolling": "1h", "slot": "1m"},
    "last_24h": {"rolling": "24h", "slot": "1h"},
    "last_7d": {"rolling": "7d", "slot": "1h"},
    "forever": "forever",
}
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "window": tuple(WINDOWS),
    "kept": ("incr", "set", "best_high", "best_low"),
    "votes": ("programs", "visitors", "once"),
    "ties": ("first", "last", "key"),
    "visibility": ("public", "private"),
}
"""The fields with a list of answers."""

USUAL: Final[Form] = {
    "types": "like", "window": "last_24h", "timezone": "UTC", "kept": "incr", "votes": "programs", "ties": "first",
    "visibility": "public",
}  # fmt: skip
"""The answers in an empty form."""

FIELDS: Final[Mapping[str, Sequence[str]]] = {
    **{name: (name,) for name in ("id", "title", "types", "timezone", "ties", "visibility", "toml")},
    "window": ("window", "calendar", "rolling"),
    "kept": ("operator", "sort_order"),
    "votes": ("votes", "like_button"),
}
"""The fields of the form, each with the choices that it makes."""

_ABOUT: Final = re.compile(r"`(\w+)")


async def _show(desk: Desk) -> Response:
    """Show the form with what was typed, and mark the fields that the error names."""
    wrong = _wrong(desk.error.detail) if isinstance(desk.error, ProblemError) else frozenset()
    return await desk.show("new_board", answers=desk.form or USUAL, options=OPTIONS, choices=FIELDS, wrong=wrong)


def _wrong(mistakes: str) -> frozenset[str]:
    """Find the fields that some lines name: one that begins with a choice is about it alone."""
    named = set[str]()
    for line in mistakes.split("\n"):
        about = _ABOUT.match(line)
        named.update([about[1]] if about else re.findall(r"\w+", line))
    return frozenset(field for field, choices in FIELDS.items() if named.intersection(choices)) or frozenset(["toml"])


async def _create(desk: Desk) -> Response:
    form = desk.form
    board = form.get("id", "").strip()
    if not BOARD_ID.fullmatch(board):
        raise ProblemError("board_invalid", f"`id`: {ID_FORM}")
    desk.producer.require_board(board)
    if await desk.live.board_admin.defined(board) is not None:
        raise ProblemError("board_invalid", "`id`: there is a board with this id")
    try:
        choices = with_more(choices_of_answers(form), form.get("toml", ""))
    except (ValueError, OverflowError, RecursionError) as error:
        raise ProblemError("board_invalid", f"`toml`: {error}") from None
    await desk.send(ApiCall("PUT", board_path(board), choices))
    return desk.done("created", f"boards/{board}")


def with_more(choices: dict[str, Any], toml: str) -> dict[str, Any]:
    """Add the choices in a TOML text to the choices of the answers.

    A choice in the text replaces the same choice of the answers. If both are tables, they are united.

    Raises:
        ValueError: the text is not TOML, or has a number that is not finite. For other texts that no JSON can express,
            the error is an `OverflowError` or a `RecursionError`.
    """
    more = msgspec.json.decode(msgspec.json.encode(tomllib.loads(toml, parse_float=_finite)))
    if "id" in more:
        raise ValueError("the id has a field of its own; leave it out")
    united = {
        name: {**choices[name], **value}
        for name, value in more.items()
        if isinstance(value, dict) and isinstance(choices.get(name), dict)
    }
    return {**choices, **more, **united}


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # JSON would have null instead, which means that the choice is not given
        raise ValueError(f"{text} is not a finite number")
    return number


def choices_of_answers(form: Form) -> dict[str, Any]:
    """Make the choices of a definition from a form. Leave out defaults. An empty field is an empty answer."""
    answers = {**dict.fromkeys(USUAL, ""), **form}
    title, window = answers.get("title", "").strip(), WINDOWS.get(answers["window"], answers["window"])
    if isinstance(window, Mapping) and "calendar" in window:
        window = {**window, "timezone": answers["timezone"].strip()}
    operator, _, end = answers["kept"].partition("_")
    # A like of a visitor counts once. On a board with a rolling window, the identity of the like ensures this. On other
    # boards, the like is a vote.
    is_rolling = isinstance(window, Mapping) and "rolling" in window
    has_votes = answers["votes"] == "once" or (answers["votes"] == "visitors" and not is_rolling)
    return {
        **({"title": title} if title else {}),
        "types": [word for word in map(str.strip, answers["types"].split(",")) if word],
        "window": window,
        **({"operator": operator} if operator != "incr" else {}),
        **({"sort_order": "asc"} if end == "low" else {}),
        **({"votes": {"per_key": 1}} if has_votes else {}),
        **({"like_button": True} if answers["votes"] == "visitors" else {}),
        **({"ties": answers["ties"]} if answers["ties"] != "first" else {}),
        "visibility": answers["visibility"],
    }


PAGE: Final = AdminPage(path="new", name="new_board", show=_show, acts={"create": _create}, most=32_768)
