"""Serves the static files of the pages: small, compressed, and cached without a time limit."""

import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from live.ingest.replies import takes_gzip
from live.web.http.bundle import bundle, script, split_bundle, style
from live.web.pages.language import TAGS
from live.web.services import assets

# The scripts of pages. Each has the scripts that it loads once the page is live. These bring the sheet `late`.
SCRIPTS: Final[Mapping[str, Sequence[str]]] = {
    "board.js": ("later.js",),
    "cards.js": (),
    "record.js": ("chart.js",),
    "client/units.js": (),  # for boards with units, whose pages load this script before they are live
    "client/fallbacks.js": (),  # for networks without WebSockets
}
ENTRIES: Final = {
    f"{tag}/{name}": (tag, name) for tag in TAGS for page, later in SCRIPTS.items() for name in (page, *later)
}
# Joined style sheets have this order.
STYLES: Final = ("board", "page", "wall", "framed", "font", "record", "admin", "late")
CLIENT: Final = frozenset(
    {"live-board.js", "view.js", "items.js", "state.js", "words.js", "stories.js", "producer.js", "element.js"}
    | {"react.js", "units.js"}
)
_PARTS: Final = frozenset({"fallbacks.js"})  # files that entry points load when they need them
# Modules that several entry points share.
_SHARED: Final = {f"client/{name}" for name in ("live-board.js", "view.js", "items.js", "words.js")}
_WORDS: Final = "client/words/"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
# Regions of scripts that pages do not need. A page has a cookie instead of a token, and the server writes facts about
# boards into the page. A page neither waits for a first snapshot nor names the parts of rows.
_APART: Final = re.compile(r"^ *//#region .*?//#endregion\n", re.MULTILINE | re.DOTALL)
# Browsers that can't adopt style sheets (Safari before 16.4) load them as a file.
_ADOPT: Final = (
    ";{let d=document,s;try{s=new CSSStyleSheet();s.replaceSync(%s);d.adoptedStyleSheets.push(s)}"
    'catch{s=d.createElement("link");s.rel="stylesheet";s.href=new URL("../late.css",import.meta.url);'
    "d.head.append(s)}}"
)
_FOREVER: Final = "public, max-age=31536000, immutable"


class PageFiles(StaticFiles):
    """The static files under a path that contains their version, so browsers never need to revalidate them.

    The script of a page is in a folder for each language: one file with all that it imports, and the words of that
    language only. The style sheets of a page are one file, whose name joins their names: `board+page.css`.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Serve a file, compressed if the client takes gzip."""
        name = PurePosixPath(path).as_posix()
        _, source = ENTRIES.get(name, (None, name))
        try:
            is_known = is_style(name) or self.lookup_path(source)[1] is not None
        except (OSError, ValueError):  # the name is too long or has a zero byte
            is_known = False
        if PurePosixPath(name).suffix not in _TYPES or not is_known:
            raise HTTPException(404)
        plain, compressed = _contents(name)
        headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
        takes = len(compressed) < len(plain) and takes_gzip(Headers(scope=scope).getlist("accept-encoding"))
        if takes:
            headers["Content-Encoding"] = "gzip"
        media_type = _TYPES[PurePosixPath(name).suffix]
        return Response(compressed if takes else plain, headers=headers, media_type=media_type)


class ClientFiles(StaticFiles):
    """The entry points of the JavaScript client, for pages of any origin, and the words of each language.

    Their URLs never change, so browsers revalidate them.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Serve an entry point, compressed if the client takes gzip. Respond with 304 if the client has it already."""
        name = PurePosixPath(path).as_posix()
        if name not in CLIENT | _PARTS and name not in {f"words/{tag}.js" for tag in TAGS}:
            raise HTTPException(404)
        if scope["method"] not in {"GET", "HEAD"}:
            raise HTTPException(405)
        plain, compressed = _contents(f"client/{name}")
        headers = Headers(scope=scope)
        takes = takes_gzip(headers.getlist("accept-encoding"))
        tag = f'"{hashlib.sha256(plain).hexdigest()[:16]}{"-gzip" if takes else ""}"'
        answer = {
            "Cache-Control": "no-cache",
            "ETag": tag,
            "Vary": "Accept-Encoding",
            "Access-Control-Allow-Origin": "*",
        }
        if tag in headers.get("if-none-match", ""):
            return Response(status_code=304, headers=answer)
        if takes:
            answer["Content-Encoding"] = "gzip"
        return Response(compressed if takes else plain, headers=answer, media_type="text/javascript")


@lru_cache(maxsize=128)  # more bundles than the pages need, because anybody may ask for other combinations
def _contents(name: str) -> tuple[bytes, bytes]:
    """Return a file as it is served, plain and compressed."""
    kind = PurePosixPath(name).suffix
    if kind == ".woff2":  # this format is compressed already
        font = (assets("static") / name).read_bytes()
        return font, font
    if name in ENTRIES:
        text = page_script(*ENTRIES[name])
    elif is_style(name):
        text = "".join(map(_sheet, name.removesuffix(".css").split("+")))
    elif name.removeprefix("client/") in CLIENT | _PARTS:
        text = client_script(name)
    else:
        text = read(name)
        text = style(text) if kind == ".css" else script(text) if kind == ".js" else text
    plain = text.encode()
    return plain, gzip.compress(plain, mtime=0)


def is_style(name: str) -> bool:
    """Tell whether a name joins style sheets, each at most once and in a fixed order.

    So each set of style sheets has one name.
    """
    parts = name.removesuffix(".css").split("+")
    return parts == [part for part in STYLES if part in parts]


@cache  # anybody may ask for any of millions of combinations, so a combination must be cheap to make
def _sheet(name: str) -> str:
    return style(read(f"{name}.css"))


def page_script(tag: str, name: str) -> str:
    """Join the script of a page, or a script that the page loads later, with all that it imports, in one language."""
    page = next(page for page, later in SCRIPTS.items() if name in {page, *later})
    return _page_scripts(tag, page)[name]


@cache
def _page_scripts(tag: str, page: str) -> dict[str, str]:
    usual = f"/{TAGS[0]}.js"

    def in_language(path: str) -> str:
        return _APART.sub("", read(path.replace(usual, f"/{tag}.js") if path.startswith(_WORDS) else path))

    made = split_bundle(page, SCRIPTS[page], in_language)
    adopt = _ADOPT % json.dumps(_sheet("late"), ensure_ascii=False)
    return {name: text + (adopt if name in SCRIPTS[page] else "") for name, text in made.items()}


def client_script(name: str) -> str:
    """Join an entry point of the client with its own modules.

    All entry points share the core, the view and the words.
    """
    return bundle(name, read, _SHARED - {name})


def read(name: str) -> str:
    """Read a static file."""
    return (assets("static") / name).read_text(encoding="utf-8")
