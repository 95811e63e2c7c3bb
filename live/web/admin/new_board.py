"""The page for a new board: six questions in plain words, and beside them the board that their answers define.

The answers become choices of a definition. The choices that no question asks for can be added as TOML. The page shows
all choices as TOML and as a request, and a preview from the events of the last hour.
"""

import math
import re
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from live.boards.definition import DefinitionError, read_board
from live.domain.board import Board
from live.errors import ProblemError
from live.journal.past.preview import preview_top
from live.store.board.ledger import Ledger
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form
from live.web.admin.board import board_toml
from live.web.admin.calls import ApiCall

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
VOTERS: Final = ("programs", "visitors", "once", "several")
KEPT: Final = ("incr", "set", "best_high", "best_low")
TIES: Final = ("first", "last", "key")
READERS: Final = ("public", "private")
FIXED: Final = ("window", "kept", "votes", "ties")
"""The questions whose answers can't change once the board has data."""

_MORE: Final = "more_choices"  # the field of choices that no question asks for
_USUAL: Final[Form] = {
    "source": "like", "window": "last_24h", "timezone": "UTC", "kept": "incr", "votes": "programs", "count": "3",
    "ties": "first", "visibility": "public",
}  # fmt: skip
_QUESTIONS: Final[Mapping[str, str]] = {  # the questions, by the choice that a mistake names
    "id": "id", "title": "title", "visibility": "visibility", "types": "source", "sources": "source",
    "window": "window", "calendar": "window", "rolling": "window", "timezone": "window", "slot": "window",
    "day_start": "window",
    "operator": "kept", "sort_order": "kept", "votes": "votes", "like_button": "votes", "per_key": "votes",
    "per_actor": "votes", "ties": "ties", "unit": "unit", "scale": "unit", "format": "unit", _MORE: _MORE,
}  # fmt: skip
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_ABOUT: Final = re.compile(r"`(\w+)[^`]*`: ")
_HOUR: Final = 3600  # seconds
_FIRST: Final = 10  # members that the preview shows
_MOST_SOURCES: Final = 20  # boards whose events the preview reads


class Preview(msgspec.Struct, frozen=True):
    """The first members that the board would have, from the events of some boards.

    `why` is the reason if there are no members.
    """

    records: Sequence[tuple[str, int]] = ()
    boards: Sequence[str] = ()
    why: str = ""


async def show(desk: Desk, error: Exception | None = None, form: Form = NO_FORM) -> Response:
    """Show the questions with the answers of a form, and their mistakes."""
    answers, board = _answers_of(form), form.get("id", "").strip()
    choices, wrong = await _checked(desk, board, answers) if form else (choices_of_answers(answers), [])
    made = _made(choices)
    return await desk.show(
        "new_board",
        None if wrong else error,
        status=422 if wrong and form.get("act") == "create" else 200,
        answers=answers,
        mistakes=_by_question(wrong, _MORE if _MORE in answers else ""),
        toml=board_toml(board or "…", choices),
        call=_call(board or "ID", choices),
        preview=Preview(why="mistake") if made is None else await _preview(desk, made),
        score_format=None if made is None else made.score_format,
        windows=WINDOWS,
        voters=VOTERS,
        kinds=KEPT,
        ties=TIES,
        readers=READERS,
        fixed=FIXED,
    )


async def preview(desk: Desk, form: Form) -> Response:
    """Show the board that the answers define."""
    return await show(desk, form=form)


async def create(desk: Desk, form: Form) -> Response:
    """Create the board, unless the answers have mistakes."""
    board = form.get("id", "").strip()
    choices, wrong = await _checked(desk, board, _answers_of(form))
    if wrong:
        return await show(desk, form=form)
    await desk.send(_call(board, choices))
    return desk.done("created", f"boards/{board}")


def _answers_of(form: Form) -> Form:
    """Return the answers in a form.

    An answer that the form lacks is empty. Without a form, return the usual answers.
    """
    return {**dict.fromkeys(_USUAL, ""), **form} if form else _USUAL


async def _checked(desk: Desk, board: str, answers: Form) -> tuple[dict[str, Any], list[str]]:
    """Return the choices of a definition, and their mistakes."""
    choices, wrong = choices_of_answers(answers), list[str]()
    try:
        choices = with_more(choices, answers.get(_MORE, ""))
    except (ValueError, OverflowError, RecursionError) as error:
        wrong.append(f"`{_MORE}`: {error}")
    return choices, wrong + await desk.live.board_admin.mistakes(board, choices, desk.producer)


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


def choices_of_answers(answers: Form) -> dict[str, Any]:
    """Make the choices of a definition from the answers. Leave out defaults."""
    title, window = answers.get("title", "").strip(), WINDOWS.get(answers["window"], answers["window"])
    if isinstance(window, Mapping) and "calendar" in window:
        window = {**window, "timezone": answers["timezone"].strip()}
        if day_start := answers.get("day_start", "").strip():
            window["day_start"] = day_start
    operator, _, end = answers["kept"].partition("_")
    votes: dict[str, Any] = {}
    # A like of a visitor counts once. On a board with a rolling window, the identity of the like ensures this. On other
    # boards, the like is a vote.
    has_votes = not (isinstance(window, Mapping) and "rolling" in window)
    if answers["votes"] == "once" or (answers["votes"] == "visitors" and has_votes):
        votes["per_key"] = 1
    elif answers["votes"] == "several":
        votes["per_actor"] = _number(answers["count"])
    if "registered" in answers:
        votes["registered"] = True
    return {
        **({"title": title} if title else {}),
        "types": [word for word in map(str.strip, answers["source"].split(",")) if word],
        "window": window,
        **({"operator": operator} if operator != "incr" else {}),
        **({"sort_order": "asc"} if end == "low" else {}),
        **({"votes": votes} if votes else {}),
        **({"like_button": True} if answers["votes"] == "visitors" else {}),
        **({"ties": answers["ties"]} if answers["ties"] != "first" else {}),
        "visibility": answers["visibility"],
        **({"unit": unit} if (unit := answers.get("unit", "").strip()) else {}),
        **({"scale": _number(answers["scale"])} if answers.get("scale", "0") not in {"", "0"} else {}),
        **({"format": "duration"} if "duration" in answers else {}),
    }


def _number(text: str) -> int | str:
    """Return the number in a text, or the text, which the check of the definition refuses."""
    return int(text) if _NUMBER.fullmatch(text) else text


def _call(board: str, choices: dict[str, Any]) -> ApiCall:
    return ApiCall("PUT", f"/v1/boards/{quote(board, safe='')}", choices)


def _made(choices: dict[str, Any]) -> Board | None:
    try:
        return read_board("preview", choices)
    except DefinitionError:
        return None


def _by_question(mistakes: Sequence[str], other: str) -> dict[str, list[str]]:
    """Return the mistakes by the question beside which the page shows them.

    A mistake that names no choice goes to `other`.

    A mistake that begins with the name of a choice is about this choice, even if it names other choices.
    """
    found: dict[str, list[str]] = {}
    for mistake in mistakes:
        about = _ABOUT.match(mistake)
        words = re.findall(r"\w+", mistake) if about is None else [about[1]]
        named = [_QUESTIONS[word] for word in words if word in _QUESTIONS]
        for question in dict.fromkeys(named) or [other]:
            found.setdefault(question, []).append(mistake)
    return found


async def _preview(desk: Desk, made: Board) -> Preview:
    """Compute the preview from the last hour of boards that count the same types of events."""
    live, sources = desk.live, list(_sources(desk.ledgers(), made))[:_MOST_SOURCES]
    if not sources or live.past is None:
        return Preview(why="no_source" if live.past is not None else "no_journal")
    names = [ledger.state.board.id for ledger in sources]
    try:
        records = await live.past.run(
            desk.visit.client.network,
            preview_top,
            [(ledger.state.board.id, ledger.state.epoch or ledger.state.born) for ledger in sources],
            round((time.time() - _HOUR) * 1_000_000),
            made.operation,
            made.sort_order,
            _FIRST,
        )
    except ProblemError:  # there are too many events, or too many queries
        return Preview(boards=names, why="too_many")
    return Preview(records, names, "" if records else "no_events")


def _sources(ledgers: Sequence[Ledger], made: Board) -> Iterator[Ledger]:
    """Choose boards that together have counted events of the types that a board takes, each event once."""
    left = set(made.source)
    for ledger in sorted(ledgers, key=lambda one: -len(one.state.board.source)):
        board = ledger.state.board
        is_plain = not board.union and not board.categories and board.score is None and ledger.state.journaled
        if is_plain and board.source and board.source <= left:
            left -= board.source
            yield ledger


PAGE: Final = AdminPage(
    path="new", name="new_board", show=show, acts={"preview": preview, "create": create}, most=32_768
)
