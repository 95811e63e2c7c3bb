"""Makes one small file of a script and everything that it imports, so that a page needs few requests.

The modules become functions in the order of their imports. The scripts in `static` use only the forms of `import` and
`export` that are known here; a test runs the result.
"""

import posixpath
import re
from collections.abc import Callable
from typing import Final

from rcssmin import cssmin
from rjsmin import jsmin

_IMPORT: Final = re.compile(r'^import (?:(\w+)|\{([^}]*)\}) from "([^"]+)";\n|^import "([^"]+)";\n', re.MULTILINE)
_LEFT: Final = re.compile(r"^import\b(?!\().*", re.MULTILINE)
_REEXPORT: Final = re.compile(r'^export \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (default |(?:async )?(?:function|class|const|let) (\w+))", re.MULTILINE)
_ENTRY_EXPORT: Final = re.compile(r"^export ", re.MULTILINE)

Read = Callable[[str], str]


def bundle(name: str, read: Read) -> str:
    """A script with its imports as one module, without comments. `read` gives the text of a file by its path."""
    parts: dict[str, str] = {}
    entry = _without_imports(name, read, parts)
    return str(jsmin("".join(parts.values()) + _ENTRY_EXPORT.sub("", entry)))


def script(name: str, read: Read) -> str:
    """A script without comments, which still imports others."""
    return str(jsmin(read(name)))


def style(name: str, read: Read) -> str:
    """A style sheet without comments and spaces."""
    return str(cssmin(read(name)))


def _without_imports(name: str, read: Read, parts: dict[str, str]) -> str:
    """The text of a module that takes what it imports from `parts`; the modules that it imports are added there."""

    def take(match: re.Match[str]) -> str:
        default, names, path, bare = match.groups()
        module = _add(posixpath.join(posixpath.dirname(name), path or bare), read, parts)
        if bare:
            return ""
        return f"const {{{f'default: {default}' if default else names.replace(' as ', ': ')}}} = {module};\n"

    text = _IMPORT.sub(take, read(name))
    if left := _LEFT.search(text):
        raise ValueError(f"{name}: can't bundle {left[0]!r}")
    return text


def _add(path: str, read: Read, parts: dict[str, str]) -> str:
    """Add a module to `parts`, unless it is there; gives the name of its exports."""
    path = posixpath.normpath(path)
    module = "_" + re.sub(r"\W", "_", path)
    if path in parts:
        return module
    text = _without_imports(path, read, parts)
    exported: list[str] = []

    def pass_on(match: re.Match[str]) -> str:
        other = _add(posixpath.join(posixpath.dirname(path), match[2]), read, parts)
        exported.extend(f"{one.strip()}: {other}.{one.strip()}" for one in match[1].split(","))
        return ""

    def keep(match: re.Match[str]) -> str:
        if match[2] is None:
            exported.append("default: _default")
            return "const _default = "
        exported.append(match[2])
        return match[1]

    text = _EXPORT.sub(keep, _REEXPORT.sub(pass_on, text))
    parts[path] = f"const {module} = (() => {{\n{text}\nreturn {{ {', '.join(exported)} }};\n}})();\n"
    return module
