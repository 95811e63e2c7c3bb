"""The surfaces that show a board: its page, a wall display, a frame of another page, or an overlay over video."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

PARTS: Final = ("qr",)  # the parts that a wall can leave out
LEAST_ROTATION: Final = 5  # seconds
MOST_ROTATION: Final = 3600

_PAGE_SIZE: Final = 50
_SIDE_SIZE: Final = 20  # records per board, if a page shows several
_WALL_SIZE: Final = 10
_MOST_TALL: Final = 3  # boards; with more of them at the same time, a wall shows half as many records of each


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """How a board is shown. `rows` is the number of records in a frame or over a video. `scale` multiplies all sizes.

    `rotate` is the number of seconds for which a wall shows one page of one board, 0 if it shows all boards at the
    same time. `without` has the parts that a wall does not show.

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


def problem_surface(path: str, query: Mapping[str, str]) -> Surface:
    """Choose the surface of an error page: the frame or the overlay of the request, or else a page."""
    if path.startswith("/overlay/"):
        return Surface(name="overlay", transparent=True, theme=overlay_theme(query.get("theme")))
    if path.startswith("/embed/"):
        return Surface(
            name="embed", transparent=query.get("bg") == "transparent", theme=embed_theme(query.get("theme"))
        )
    return Surface()


def embed_theme(theme: str | None) -> str | None:
    """Return the theme of a frame that has this parameter. None means the theme of the system."""
    return None if theme == "auto" else "dark" if theme == "dark" else "light"


def overlay_theme(theme: str | None) -> str:
    """Return the theme of an overlay that has this parameter."""
    return "light" if theme == "light" else "dark"
