"""The parameters of pages."""

import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from live.domain.window import parse_duration
from live.fanout.subscription import MOST_WATCHED
from live.network.parameters import Parameters
from live.web.pages.display_modes import LEAST_ROTATION, MOST_ROTATION, PARTS, Surface, embed_theme, overlay_theme
from live.web.pages.language import TAGS
from live.web.pages.preferences import THEMES
from live.web.reads.boards import Start
from live.web.reads.search import LONGEST_PREFIX
from live.web.reads.sources import AsOfTime, PeriodName, When

LONGEST_SEARCH: Final = 64  # characters

_SCALE: Final = re.compile(r"[0-9](?:\.[0-9]{1,2})?")
_LEAST_SCALE: Final = 0.5
_MOST_SCALE: Final = 5


class LookParameters(Parameters, frozen=True, kw_only=True):
    """How a page looks. Other values than these count as left out."""

    lang: Annotated[
        str | None,
        Meta(
            description="The language. By default the visitor's choice, or else the best one in `Accept-Language`.",
            extra={"schema": {"enum": list(TAGS)}},
        ),
    ] = None
    theme: Annotated[
        str | None,
        Meta(
            description="The theme. By default the visitor's choice, or else the theme of the system (`auto`).",
            extra={"schema": {"enum": list(THEMES)}},
        ),
    ] = None


class VisitParameters(LookParameters, frozen=True, kw_only=True):
    """How a page looks, and the viewer token of the visitor."""

    token: Annotated[
        str | None,
        Meta(description="A viewer token. The response sets a cookie, and redirects to the address without the token."),
    ] = None


class IndexParameters(VisitParameters, frozen=True, kw_only=True):
    """A page of the list of boards."""

    page: Annotated[
        int,
        Meta(ge=1, le=10**6, description="Number of the page of the list. A page beyond the last one is empty."),
    ] = 1
    q: Annotated[
        str,
        Meta(
            max_length=LONGEST_SEARCH,
            description="List only boards with this text in their id or title, in upper or lower case.",
        ),
    ] = ""


def _rotation_of(text: str) -> int:
    """Read the number of seconds for which each page of a board is shown."""
    seconds = parse_duration(text)
    if not LEAST_ROTATION <= seconds <= MOST_ROTATION:
        raise ValueError(text)
    return round(seconds)


def _without_of(parts: Collection[str], text: str) -> frozenset[str]:
    without = frozenset(text.split(","))
    if not without <= set(parts):
        raise ValueError(text)
    return without


def _some_of(parts: Sequence[str]) -> str:
    return f"some of {', '.join(parts)}, separated by commas"


def _scale_of(text: str) -> str:
    if not _SCALE.fullmatch(text) or not _LEAST_SCALE <= float(text) <= _MOST_SCALE:
        raise ValueError(text)
    return text


class ShownParameters(VisitParameters, frozen=True, kw_only=True):
    """The records that a surface shows."""

    period: PeriodName = "current"
    as_of: AsOfTime = None
    key: Annotated[str | None, Meta(description="A member whose rank is shown.")] = None
    limit: Annotated[int, Meta(ge=1, le=MOST_WATCHED, description="The number of records.")] | None = None

    @property
    def when(self) -> When:
        """The time for which boards are shown."""
        return When(self.period, self.as_of)


class PageParameters(ShownParameters, frozen=True, kw_only=True):
    """The page of a board, or with `display` the display on a wall."""

    display: Annotated[
        Literal["page", "wall"], Meta(description="A display on a wall: ten records, readable across a room.")
    ] = "page"
    rotate: Annotated[
        int,
        Meta(
            description="On a wall: show the pages of the boards one after another, each for this time.",
            extra={
                "read": _rotation_of,
                "valid": f"from {LEAST_ROTATION}s to {MOST_ROTATION}s, like 20s",
                "schema": {"type": "string", "examples": ["20s"]},
            },
        ),
    ] = 0
    without: Annotated[
        frozenset[str],
        Meta(
            description="On a wall: `qr` leaves out the QR codes.",
            extra={"read": partial(_without_of, PARTS), "valid": _some_of(PARTS), "schema": {"type": "string"}},
        ),
    ] = frozenset()
    start: Annotated[Start, Meta(description="Number of records to skip. A page with a start does not update.")] = 0
    contestants: Annotated[
        str | None,
        Meta(description="The place from which to list contestants without votes. Links of the page have it."),
    ] = None
    find: Annotated[
        str,
        Meta(
            max_length=LONGEST_PREFIX,
            description="List members with a word in their name or title that begins with this text.",
        ),
    ] = ""

    @property
    def surface(self) -> Surface:
        """The page, or the display on a wall."""
        if self.display == "page":
            return Surface()
        return Surface(name="wall", rotate=self.rotate, without=self.without)


class EmbedParameters(ShownParameters, frozen=True, kw_only=True):
    """A frame on another page.

    The frame is light unless the address has `theme=dark` or `theme=auto`: the page around it may not follow the system
    of the visitor, as `auto` does.
    """

    rows: Annotated[int, Meta(ge=1, le=MOST_WATCHED, description="The number of records.")] = 10
    theme: Annotated[
        str | None,
        Meta(
            description="The theme. By default light; `auto` is the theme of the system.",
            extra={"schema": {"enum": list(THEMES)}},
        ),
    ] = None
    bg: Annotated[
        Literal["page", "transparent"],
        Meta(description="Let the background of the page around the frame show through."),
    ] = "page"

    @property
    def surface(self) -> Surface:
        """The frame."""
        return Surface(
            name="embed", rows=self.rows, transparent=self.bg == "transparent", theme=embed_theme(self.theme)
        )


class OverlayParameters(ShownParameters, frozen=True, kw_only=True):
    """An overlay for video."""

    rows: Annotated[int, Meta(ge=1, le=MOST_WATCHED, description="The number of records.")] = 8
    theme: Annotated[
        str | None, Meta(description="The theme. By default dark.", extra={"schema": {"enum": ["light", "dark"]}})
    ] = None
    scale: Annotated[
        str,
        Meta(
            description="Multiply all sizes by this.",
            extra={
                "read": _scale_of,
                "valid": f"a number from {_LEAST_SCALE} to {_MOST_SCALE}",
                "schema": {"type": "number", "minimum": _LEAST_SCALE, "maximum": _MOST_SCALE, "default": 1},
            },
        ),
    ] = "1"

    @property
    def surface(self) -> Surface:
        """The overlay."""
        return Surface(
            name="overlay",
            rows=self.rows,
            scale=self.scale,
            transparent=True,
            theme=overlay_theme(self.theme),
        )


SurfaceParameters: TypeAlias = PageParameters | EmbedParameters | OverlayParameters
