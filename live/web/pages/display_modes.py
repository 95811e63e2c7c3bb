"""The surfaces that show a board: its page, a wall display, a frame of another page, or an overlay over video."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from live.domain.window import parse_duration
from live.errors import ProblemError
from live.network.parameters import whole_number

PARTS: Final = ("clock", "qr", "ticker")  # the parts that a wall can leave out
LEAST_ROTATION: Final = 5  # seconds
MOST_ROTATION: Final = 3600

_SCALE: Final = re.compile(r"[0-9](?:\.[0-9]{1,2})?")
_LEAST_SCALE: Final = 0.5
_MOST_SCALE: Final = 5
_PAGE_SIZE: Final = 50
_SIDE_SIZE: Final = 20  # records per board, if a page shows several
_WALL_SIZE: Final = 10
_MOST_TALL: Final = 3  # boards; with more of them at the same time, a wall shows half as many records of each
_EMBED_SIZE: Final = 10
_OVERLAY_SIZE: Final = 8


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """How a board is shown. `rows` is the number of records in a frame or over a video. `scale` multiplies all sizes.

    `rotate` is the number of seconds for which a wall shows one page of one board, 0 if it shows all boards at the
    same time. `without` has the parts that a wall or an overlay does not show.

    A surface other than `page` has no header, no footer and no controls. `theme` is the theme of a framed surface; None
    means the theme of the system.
    """

    name: Literal["page", "wall", "embed", "overlay"] = "page"
    rows: int = 0
    scale: str = "1"
    transparent: bool = False
    theme: str | None = None
    rotate: int = 0
    without: frozenset[str] = frozenset()

    def size_of(self, boards: int) -> int:
        """Return how many records of each board the surface shows, unless the address has a `limit`."""
        match self.name:
            case "page":
                return _PAGE_SIZE if boards == 1 else _SIDE_SIZE
            case "wall":
                return _WALL_SIZE if boards <= _MOST_TALL or self.rotate else _WALL_SIZE // 2
            case _:
                return self.rows

    @property
    def is_framed(self) -> bool:
        """Whether other pages and programs may show the surface in a frame."""
        return self.name in {"embed", "overlay"}


def page_of(query: Mapping[str, str]) -> Surface:
    """Choose the page of a board, or with `?display=wall` the display on a wall.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    display = query.get("display", "page")
    if display not in {"page", "wall"}:
        raise ProblemError("parameter_invalid", "`display` must be wall, or left out")
    if display == "page":
        return Surface()
    return Surface(name="wall", rotate=_rotate_of(query), without=_without_of(query, PARTS))


def embed_of(query: Mapping[str, str], most: int) -> Surface:
    """Choose a frame on another page: `?rows=10&theme=light`. `most` is the maximum number of rows.

    With `?bg=transparent`, the background of the other page shows through. The frame is light unless the address has
    `theme=dark` or `theme=auto`: the page around it may not follow the system of the visitor, as `auto` does.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    background = query.get("bg", "page")
    if background not in {"page", "transparent"}:
        raise ProblemError("parameter_invalid", "`bg` must be transparent, or left out")
    rows = whole_number(query, "rows", min(_EMBED_SIZE, most), 1, most)
    return Surface(name="embed", rows=rows, transparent=background == "transparent", theme=_embed_theme(query))


def overlay_of(query: Mapping[str, str], most: int) -> Surface:
    """Choose an overlay for video: `?rows=8&theme=dark&scale=1.2`. `most` is the maximum number of rows.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    scale = query.get("scale", "1")
    if not _SCALE.fullmatch(scale) or not _LEAST_SCALE <= float(scale) <= _MOST_SCALE:
        raise ProblemError("parameter_invalid", f"`scale` must be a number from {_LEAST_SCALE} to {_MOST_SCALE}")
    rows = whole_number(query, "rows", min(_OVERLAY_SIZE, most), 1, most)
    return Surface(
        name="overlay",
        rows=rows,
        scale=scale,
        transparent=True,
        theme=_overlay_theme(query),
        without=_without_of(query, ("ticker",)),
    )


def problem_surface(path: str, query: Mapping[str, str]) -> Surface:
    """Choose the surface of an error page: the frame or the overlay of the request, or else a page."""
    if path.startswith("/overlay/"):
        return Surface(name="overlay", transparent=True, theme=_overlay_theme(query))
    if path.startswith("/embed/"):
        return Surface(name="embed", transparent=query.get("bg") == "transparent", theme=_embed_theme(query))
    return Surface()


def _rotate_of(query: Mapping[str, str]) -> int:
    """Read the number of seconds for which each page of a board is shown."""
    if "rotate" not in query:
        return 0
    try:
        seconds = parse_duration(query["rotate"])
    except ValueError:
        seconds = 0
    if not LEAST_ROTATION <= seconds <= MOST_ROTATION:
        raise ProblemError(
            "parameter_invalid", f"`rotate` must be from {LEAST_ROTATION}s to {MOST_ROTATION}s, like 20s"
        )
    return round(seconds)


def _without_of(query: Mapping[str, str], parts: Sequence[str]) -> frozenset[str]:
    without = frozenset(query["without"].split(",")) if "without" in query else frozenset()
    if not without <= set(parts):
        raise ProblemError("parameter_invalid", f"`without` must be some of {', '.join(parts)}, separated by commas")
    return without


def _embed_theme(query: Mapping[str, str]) -> str | None:
    theme = query.get("theme")
    return None if theme == "auto" else "dark" if theme == "dark" else "light"


def _overlay_theme(query: Mapping[str, str]) -> str:
    return "light" if query.get("theme") == "light" else "dark"
