"""Serves the static files of the pages: small, compressed, and cached for as long as browsers like."""

import gzip
from functools import cache
from pathlib import PurePosixPath
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from live.network.encodings import takes_gzip
from live.web.bundle import Read, bundle, script, style
from live.web.state import assets

_ENTRIES: Final = frozenset({"board.js", "cards.js", "record.js"})  # served together with all that they import
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"


class PageFiles(StaticFiles):
    """The static files under a path that contains their version, so browsers never need to revalidate them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The response for a file, compressed if the client takes that."""
        name = PurePosixPath(path).as_posix()
        if PurePosixPath(name).suffix not in _TYPES or not self.lookup_path(path)[1]:
            raise HTTPException(404)
        plain, compressed = _contents(name)
        takes = takes_gzip(Headers(scope=scope).getlist("accept-encoding"))
        headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
        if takes:
            headers["Content-Encoding"] = "gzip"
        media_type = _TYPES[PurePosixPath(name).suffix]
        return Response(compressed if takes else plain, headers=headers, media_type=media_type)


@cache
def _contents(name: str) -> tuple[bytes, bytes]:
    """A file as it is served, plain and compressed."""
    kind = PurePosixPath(name).suffix
    make = style if kind == ".css" else _as_is if kind == ".svg" else bundle if name in _ENTRIES else script
    plain = make(name, _read).encode()
    return plain, gzip.compress(plain, mtime=0)


def _as_is(name: str, read: Read) -> str:
    return read(name)


def _read(name: str) -> str:
    return (assets("static") / name).read_text(encoding="utf-8")
