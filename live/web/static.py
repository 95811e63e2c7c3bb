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
from live.web.bundle import bundle, script, style
from live.web.language import TAGS
from live.web.state import assets

ENTRIES: Final = {
    f"{tag}/{name}": (tag, name) for tag in TAGS for name in ("board.js", "cards.js", "record.js", "tools.js")
}
_WORDS: Final = "client/words/{}.js"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"


class PageFiles(StaticFiles):
    """The static files under a path that contains their version, so browsers never need to revalidate them.

    The script of a page is in a folder for each language: one file with all that it imports, and those words only.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The response for a file, compressed if the client takes that."""
        name = PurePosixPath(path).as_posix()
        _, source = ENTRIES.get(name, (None, name))
        if PurePosixPath(name).suffix not in _TYPES or not self.lookup_path(source)[1]:
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
    if name in ENTRIES:
        text = page_script(*ENTRIES[name])
    else:
        text = read(name)
        text = style(text) if kind == ".css" else script(text) if kind == ".js" else text
    plain = text.encode()
    return plain, gzip.compress(plain, mtime=0)


def page_script(tag: str, name: str) -> str:
    """The script of a page with all that it imports, in one language."""
    usual, own = (_WORDS.format(language) for language in (TAGS[0], tag))
    return bundle(name, lambda path: read(own if path == usual else path))


def read(name: str) -> str:
    """The text of a static file."""
    return (assets("static") / name).read_text(encoding="utf-8")
