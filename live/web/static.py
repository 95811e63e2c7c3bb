"""Serves the static files of the pages: small, compressed, and cached without a time limit.

A script is joined with everything that it imports into one small file, so that a page needs few requests. The modules
are joined in the order of their imports, as if they were one module. So a name at the top level of one module must not
be declared in another module, and imports can't rename. The scripts in `static` use only the forms of `import` and
`export` that this module knows; a test runs the result.
"""

import gzip
import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from live.http.reply import takes_gzip
from live.web.pages.language import TAGS
from live.web.parts import assets

try:
    from minify import string as _minify
except ImportError:  # there is no wheel for macOS on ARM: the files stay as they are

    def _minify(_: str, text: str) -> str:
        return text


# The scripts of pages. Each has the scripts that it loads once the page is live. These bring the sheet `late`.
SCRIPTS: Final[Mapping[str, Sequence[str]]] = {
    "board.js": ("later.js",),
    "cards.js": ("listed.js",),
    "record.js": ("chart.js",),
    "client/units.js": (),  # for boards with units, whose pages load this script before they are live
    "client/fallbacks.js": (),  # for networks without WebSockets
}
ENTRIES: Final = {
    f"{tag}/{name}": (tag, name) for tag in TAGS for page, later in SCRIPTS.items() for name in (page, *later)
}
# Joined style sheets have this order. Those in `_MARKED` are parts of other files, which begin with a mark.
STYLES: Final = ("board", "contest", "page", "screen", "wall", "overlay", "record", "cards", "admin", "late")
_MARKED: Final = {
    "contest": "board",
    "wall": "screen",
    "overlay": "screen",
    "record": "page",
    "cards": "page",
    "late": "page",
}
_MARK: Final = re.compile(r"^/\*#(\w+)", re.MULTILINE)
CLIENT: Final = frozenset(
    {"live-board.js", "view.js", "items.js", "state.js", "words.js", "stories.js", "producer.js", "element.js"}
    | {"react.js", "units.js", "parts.js", "motion.js", "announcer.js"}
)
_PARTS: Final = frozenset({"fallbacks.js", "row-words.js"})  # files that entry points load
# Modules that several entry points share.
_SHARED: Final = {f"client/{name}" for name in ("live-board.js", "view.js", "items.js", "words.js", "row-words.js")}
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
_IMPORT: Final = re.compile(r'^(?:import|export) (?:\{([^}]*)\} from )?"([^"]+)";\n', re.MULTILINE)
_CONTAINER: Final = re.compile(r"@container( ?\(max-width: ?4[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})")
_SPACES: Final = re.compile(r"\s*([{};>,])\s*|(?<=:)\s+")  # characters without a meaning in a style sheet
_LOADED: Final = re.compile(r'\bimport\("(\.[^"]+)"\)')
_PACKAGE: Final = re.compile(r"[^./]")
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) (\w+))", re.MULTILINE)
_LEFT: Final = re.compile(r"^(?:import\b(?!\()|export\b).*", re.MULTILINE)
# The minifier would drop the expression in the parentheses after `void`, although it has effects.
_DROPPED: Final = re.compile(r"\bvoid \(.*")
# It moves `const { a } = (x).y` before `const x`, if they are in one series.
_TOO_EARLY: Final = re.compile(r"\b(?:const|let|var)[{\[][^;()]*?[}\]]=[^;,/\"'`]*?(?<![.\w$])([\w$]+)\b[^;]*?,\1=")
_DECLARED: Final = re.compile(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)


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
    """The JavaScript client and its words, for pages of any origin. URLs never change, so browsers revalidate."""

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
    kind = PurePosixPath(name).suffix
    if kind == ".woff2":  # this format is compressed already
        font = (assets("static") / name).read_bytes()
        return font, font
    if name in ENTRIES:
        text = page_script(*ENTRIES[name])
    elif is_style(name):
        text = "".join(map(_sheet, name.removesuffix(".css").split("+")))
    elif name.startswith(_WORDS) or name.removeprefix("client/") in CLIENT | _PARTS:
        text = client_script(name)
    else:
        text = read(name)
        text = style(text) if kind == ".css" else script(text) if kind == ".js" else text
    plain = text.encode()
    return plain, gzip.compress(plain, mtime=0)


def is_style(name: str) -> bool:
    """Tell whether a name joins style sheets, each at most once and in a fixed order, so that each set has one name."""
    parts = name.removesuffix(".css").split("+")
    return parts == [part for part in STYLES if part in parts]


@cache  # anybody may ask for any of millions of combinations, so a combination must be cheap to make
def _sheet(name: str) -> str:
    file = _MARKED.get(name, name)
    parts = _MARK.split(read(f"{file}.css"))
    return style(parts[0] if file == name else f"/*{parts[parts.index(name) + 1]}")


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
    """Join an entry point of the client with its own modules. All entry points share core, view and words."""
    return bundle(name, read, _SHARED - {name})


def read(name: str) -> str:
    """Read a static file."""
    return (assets("static") / name).read_text(encoding="utf-8")


Read = Callable[[str], str]


def bundle(name: str, read: Read, apart: Collection[str] = ()) -> str:
    """Join a script with its imports into one module."""
    return split_bundle(name, (), read, apart)[name]


def split_bundle(name: str, later: Sequence[str], read: Read, apart: Collection[str] = ()) -> dict[str, str]:
    """Join a script, and each script that it loads later. These import from the first what they share with it.

    `read` gives the text of a file by its path. Imports from a package, or from a module in `apart`, stay, and so do
    calls of `import()`.
    """
    folder = posixpath.dirname(name)
    first = _Joined(read, apart, folder)
    exported = first.add(name)
    made = {}
    for path in later:
        joined = _Joined(read, first.texts.keys(), folder)
        own = joined.add(path)
        taken = sorted({one for names in joined.left().values() for one in names})
        exported += [one for one in taken if one not in exported]
        made[path] = _whole(joined, own, {f"./{posixpath.basename(name)}": taken} if taken else {})
    made[name] = _whole(first, exported, first.left())
    return made


def _whole(joined: "_Joined", exported: Sequence[str], imported: Mapping[str, Sequence[str]]) -> str:
    taken = {name for names in imported.values() for name in names}
    names = ",".join(name for name in exported if name not in taken)
    passed = ",".join(name for name in exported if name in taken)
    inner = "".join(joined.texts.values()) + (f"return{{{names}}}" if names else "")
    head = "".join(f'import {{{",".join(used)}}} from "{path}";\n' for path, used in imported.items())
    head += f"export {{{passed}}};\n" if passed else ""
    whole = f"(()=>{{{inner}\n}})();"
    return script(head + (f"export const {{{names}}}={whole}" if names else whole))


def script(text: str) -> str:
    """Remove the comments of a script, and shorten local names."""
    if dropped := _DROPPED.search(text):
        raise ValueError(f"can't minify {dropped[0]!r}")
    small = str(_minify("application/javascript", text))
    if early := _TOO_EARLY.search(small):
        raise ValueError(f"the minifier uses a name before its declaration: {early[0]!r}")
    return small


def style(text: str) -> str:
    """Remove the comments and spaces of a style sheet. The minifier leaves `@container` as it is.

    Browsers without container queries, such as Chromium before 105, use the width of the window instead. In other
    browsers, this changes nothing: a container is not wider than the window.
    """
    small = _SPACES.sub(r"\1", str(_minify("text/css", text))).replace(";}", "}")
    return _CONTAINER.sub(r"\g<0>@media\1", small)


class _Joined:
    """The texts of modules without `import` and `export`, in the order of their imports.

    `folder` is the folder of the joined script.
    """

    def __init__(self, read: Read, apart: Collection[str], folder: str) -> None:
        self.texts: dict[str, str] = {}
        self._read = read
        self._apart = frozenset(apart)
        self._folder = folder or "."
        self._owners: dict[str, str] = {}  # modules by the names that they declare
        self._exports: dict[str, list[str]] = {}
        self._left: dict[str, list[str]] = {}

    def add(self, path: str) -> list[str]:
        """Add a module and its imports, and return what it exports."""
        if path in self._exports:
            return self._exports[path]
        exported = self._exports[path] = []

        def take(match: re.Match[str]) -> str:
            names = [name.strip() for name in (match[1] or "").split(",") if name.strip()]
            source = match[2]
            is_package = _PACKAGE.match(source) is not None
            module = source if is_package else _beside(path, source)
            if is_package or module in self._apart:
                held = self._left.setdefault(module, [])
                held.extend(name for name in names if name not in held)
                for taken in names:
                    self._own(taken, "another script")
            elif missing := set(names) - set(self.add(module)):
                raise ValueError(f"{path}: {module} does not export {', '.join(sorted(missing))}")
            if match[0].startswith("export"):
                exported.extend(names)
            return ""

        def keep(match: re.Match[str]) -> str:
            exported.append(match[1])
            return ""

        text = _EXPORT.sub(keep, _IMPORT.sub(take, self._read(path)))
        text = _LOADED.sub(lambda match: f'import("{self._path_to(_beside(path, match[1]))}")', text)
        if left := _LEFT.search(text):
            raise ValueError(f"{path}: can't bundle {left[0]!r}")
        for name in _DECLARED.findall(text):
            self._own(name, path)
        self.texts[path] = text
        return exported

    def _own(self, name: str, path: str) -> None:
        if (owner := self._owners.setdefault(name, path)) != path:
            raise ValueError(f"{path}: `{name}` is also declared in {owner}")

    def left(self) -> dict[str, list[str]]:
        """Return the names that stay imported, by the path that they are imported from."""
        return {
            source if source not in self._apart else self._path_to(source): names
            for source, names in self._left.items()
        }

    def _path_to(self, module: str) -> str:
        return f"./{posixpath.relpath(module, self._folder)}"


def _beside(path: str, source: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), source))
