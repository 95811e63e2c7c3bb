"""The parameters of pages, and so the surfaces that show boards: a page, a wall, a frame, or an overlay over video."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec

from live.domain.meaning import says
from live.domain.window import parse_duration
from live.fanout.subscription import MOST_WATCHED
from live.http.parameters import Parameters
from live.web.api.boards import Start
from live.web.api.records import LONGEST_PREFIX
from live.web.api.sources import AsOfTime, PeriodName, When
from live.web.pages.language import TAGS
from live.web.pages.preferences import THEMES

LONGEST_SEARCH: Final = 64  # characters

_LEAST_ROTATION: Final = 5  # seconds
_MOST_ROTATION: Final = 3600
_PAGE_SIZE: Final = 50
_SIDE_SIZE: Final = 20  # records per board, if a page shows several
_WALL_SIZE: Final = 10
_MOST_TALL: Final = 3  # boards; with more of them at the same time, a wall shows half as many records of each
_SCALE: Final = re.compile(r"[0-9](?:\.[0-9]{1,2})?")
_LEAST_SCALE: Final = 0.5
_MOST_SCALE: Final = 5


class LookParameters(Parameters, frozen=True, kw_only=True):
    """How a page looks. Other values than these count as left out."""

    lang: Annotated[
        str | None,
        says(
            "The language. By default the visitor's choice, or else the best one in `Accept-Language`.",
            extra={"schema": {"enum": list(TAGS)}},
        ),
    ] = None
    theme: Annotated[
        str | None,
        says(
            "The theme. By default the visitor's choice, or else the theme of the system (`auto`).",
            extra={"schema": {"enum": list(THEMES)}},
        ),
    ] = None


class VisitParameters(LookParameters, frozen=True, kw_only=True):
    """How a page looks, and the viewer token of the visitor."""

    token: Annotated[
        str | None, says("A viewer token. The response sets a cookie, and redirects to the address without the token.")
    ] = None


class IndexParameters(VisitParameters, frozen=True, kw_only=True):
    """A page of the list of boards."""

    page: Annotated[
        int, says("Number of the page of the list. A page beyond the last one is empty.", ge=1, le=10**6)
    ] = 1
    q: Annotated[
        str,
        says(
            "List only boards with this text in their id or title, in upper or lower case.", max_length=LONGEST_SEARCH
        ),
    ] = ""


def _rotation_of(text: str) -> int:
    seconds = parse_duration(text)
    if not _LEAST_ROTATION <= seconds <= _MOST_ROTATION:
        raise ValueError(text)
    return round(seconds)


def _without_of(text: str) -> frozenset[str]:
    without = frozenset(text.split(","))
    if without != {"qr"}:
        raise ValueError(text)
    return without


def _scale_of(text: str) -> str:
    if not _SCALE.fullmatch(text) or not _LEAST_SCALE <= float(text) <= _MOST_SCALE:
        raise ValueError(text)
    return text


class ShownParameters(VisitParameters, frozen=True, kw_only=True):
    """The records that a surface shows.

    A surface other than a page has no header, no footer and no controls. Other pages and programs may show it in a
    frame if `is_framed`.
    """

    is_framed: ClassVar[bool] = False

    period: PeriodName = "current"
    as_of: AsOfTime = None
    member: Annotated[str | None, says("A member whose rank is shown.")] = msgspec.field(name="key", default=None)
    limit: Annotated[int, says("The number of records.", ge=1, le=MOST_WATCHED)] | None = None

    @property
    def when(self) -> When:
        """The time for which boards are shown."""
        return When(self.period, self.as_of)


class PageParameters(ShownParameters, frozen=True, kw_only=True):
    """The page of a board, or with `display` the display on a wall."""

    display: Annotated[Literal["page", "wall"], says("A display on a wall: ten records, readable across a room.")] = (
        "page"
    )
    rotate: Annotated[
        int,
        says(
            "On a wall: show the pages of the boards one after another, each for this time.",
            extra={
                "read": _rotation_of,
                "valid": f"from {_LEAST_ROTATION}s to {_MOST_ROTATION}s, like 20s",
                "schema": {"type": "string", "examples": ["20s"]},
            },
        ),
    ] = 0
    without: Annotated[
        frozenset[str],
        says(
            "On a wall: `qr` leaves out the QR codes.",
            extra={
                "read": _without_of,
                "valid": "some of qr, separated by commas",
                "schema": {"type": "string"},
            },
        ),
    ] = frozenset()
    start: Annotated[Start, says("Number of records to skip. A page with a start does not update.")] = 0
    contestants: Annotated[
        str | None, says("The place from which to list contestants without votes. Links of the page have it.")
    ] = None
    find: Annotated[
        str,
        says("List members with a word in their name or title that begins with this text.", max_length=LONGEST_PREFIX),
    ] = ""

    @property
    def name(self) -> str:
        """The name of the surface."""
        return self.display

    def size_of(self, boards: int) -> int:
        """Return how many records of each board the surface shows."""
        if self.limit is not None:
            return self.limit
        if self.display == "page":
            return _PAGE_SIZE if boards == 1 else _SIDE_SIZE
        return _WALL_SIZE if boards <= _MOST_TALL or self.rotate else _WALL_SIZE // 2


class FramedParameters(ShownParameters, frozen=True, kw_only=True):
    """A surface that other pages and programs show."""

    is_framed: ClassVar[bool] = True

    limit: Annotated[int, says("The number of records.", ge=1, le=MOST_WATCHED)] = 10

    def size_of(self, _boards: int) -> int:
        """Return how many records of each board the surface shows."""
        return self.limit


class EmbedParameters(FramedParameters, frozen=True, kw_only=True):
    """A frame on another page.

    The frame is light unless the address has `theme=dark` or `theme=auto`: the page around it may not follow the system
    of the visitor, as `auto` does.
    """

    name: ClassVar[str] = "embed"
    theme: Annotated[
        str | None,
        says(
            "The theme. By default light; `auto` is the theme of the system.", extra={"schema": {"enum": list(THEMES)}}
        ),
    ] = None
    bg: Annotated[
        Literal["page", "transparent"], says("Let the background of the page around the frame show through.")
    ] = "page"

    @property
    def transparent(self) -> bool:
        """Whether the background of the page around the frame shows through."""
        return self.bg == "transparent"

    @property
    def own_theme(self) -> str | None:
        """The theme of the frame. None means the theme of the system."""
        return None if self.theme == "auto" else "dark" if self.theme == "dark" else "light"


class OverlayParameters(FramedParameters, frozen=True, kw_only=True):
    """An overlay for video."""

    name: ClassVar[str] = "overlay"
    transparent: ClassVar[bool] = True
    limit: Annotated[int, says("The number of records.", ge=1, le=MOST_WATCHED)] = 8
    theme: Annotated[str | None, says("The theme. By default dark.", extra={"schema": {"enum": ["light", "dark"]}})] = (
        None
    )
    scale: Annotated[
        str,
        says(
            "Multiply all sizes by this.",
            extra={
                "read": _scale_of,
                "valid": f"a number from {_LEAST_SCALE} to {_MOST_SCALE}",
                "schema": {"type": "number", "minimum": _LEAST_SCALE, "maximum": _MOST_SCALE, "default": 1},
            },
        ),
    ] = "1"

    @property
    def own_theme(self) -> str:
        """The theme of the overlay."""
        return "light" if self.theme == "light" else "dark"


Surface: TypeAlias = PageParameters | EmbedParameters | OverlayParameters


def problem_surface(path: str, query: Mapping[str, str]) -> Surface:
    """Choose the surface of an error page: the frame or the overlay of the request, or else a page."""
    if path.startswith("/overlay/"):
        return OverlayParameters(theme=query.get("theme"))
    if path.startswith("/embed/"):
        return EmbedParameters(
            theme=query.get("theme"), bg="transparent" if query.get("bg") == "transparent" else "page"
        )
    return PageParameters()
