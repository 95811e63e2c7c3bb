"""Makes one small file of a script and everything that it imports, so that a page needs few requests.

The modules are joined in the order of their imports, as if they were one module. So a name at the top level of one
module must not be declared in another module, and imports can't rename. The scripts in `static` use only the forms of
`import` and `export` that this module knows; a test runs the result.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

try:
    from minify import string as _minify
except ImportError:  # there is no wheel for macOS on ARM: the files stay as they are

    def _minify(_: str, text: str) -> str:
        return text


_IMPORT: Final = re.compile(r'^(?:import|export) (?:\{([^}]*)\} from )?"([^"]+)";\n', re.MULTILINE)
_CONTAINER: Final = re.compile(r"@container( ?\(max-width: ?4[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})")
_SPACES: Final = re.compile(r"\s*([{};>,])\s*|(?<=:)\s+")  # characters without a meaning in a style sheet
_LOADED: Final = re.compile(r'\bimport\("(\.[^"]+)"\)')
_PACKAGE: Final = re.compile(r"[^./]")
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) (\w+))", re.MULTILINE)
_LEFT: Final = re.compile(r"^(?:import\b(?!\()|export\b).*", re.MULTILINE)
# The minifier would drop the expression in the parentheses after `void`, although it has effects.
_DROPPED: Final = re.compile(r"\bvoid \(.*")
_DECLARED: Final = re.compile(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)

Read = Callable[[str], str]


def bundle(name: str, read: Read, apart: Collection[str] = ()) -> str:
    """Join a script with its imports into one module. `read` gives the text of a file by its path.

    Imports from a package, or from a module in `apart`, stay, and so do calls of `import()`.

    Raises:
        ValueError: the modules can't be joined.
    """
    joined = _Joined(read, apart, posixpath.dirname(name))
    exported = joined.add(name)
    return _whole(joined, exported, joined.left())


def split_bundle(name: str, later: Sequence[str], read: Read) -> dict[str, str]:
    """Join a script, and each script that it loads later.

    The later scripts import from the first script what they share with it. All scripts are in one folder.

    Raises:
        ValueError: the modules can't be joined.
    """
    folder = posixpath.dirname(name)
    first = _Joined(read, (), folder)
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
    names = ",".join(exported)
    inner = "".join(joined.texts.values()) + (f"return{{{names}}}" if names else "")
    head = "".join(f'import {{{",".join(taken)}}} from "{path}";\n' for path, taken in imported.items())
    whole = f"(()=>{{{inner}\n}})();"
    return script(head + (f"export const {{{names}}}={whole}" if names else whole))


def script(text: str) -> str:
    """Remove the comments of a script, and shorten local names.

    Raises:
        ValueError: the minifier would change the behaviour of the script.
    """
    if dropped := _DROPPED.search(text):
        raise ValueError(f"can't minify {dropped[0]!r}")
    return str(_minify("application/javascript", text))


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
