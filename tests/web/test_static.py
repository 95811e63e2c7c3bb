"""The static files of the pages: few, small and compressed."""

import gzip
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from live.web.parts import assets
from live.web.static import ENTRIES, SCRIPTS, bundle, page_script, read, split_bundle, style
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

NODE = shutil.which("node")
PARTS = ["./client/fallbacks.js", "./client/units.js"]  # scripts that few pages need
LATER = {
    "board.js": [*PARTS, "./later.js"],
    "cards.js": [*PARTS, "./listed.js"],
    "record.js": [*PARTS, "./chart.js"],
    "later.js": ["./board.js"],
    "listed.js": ["./cards.js"],
    "chart.js": ["./record.js"],
}
MOST_CORE = 5 * 1024
MOST_LATER = 19 * 1024  # the most bytes of the script that is loaded later, with its style sheet
MODULES = {
    "entry.js": """import { one, two } from "./in/one.js";
import { three } from "./in/three.js";
import "./side.js";
export const done = 1;
console.log(JSON.stringify([one, two(), three, done, globalThis.side]));
""",
    "side.js": "globalThis.side = 5; // a comment\n",
    "in/one.js": """/** A comment. */
import { three } from "./three.js";
export { three } from "./three.js";
export const one = { "a": "// no comment", "b": `x  y ${three}` };
export function two() {
  return three + /\\/\\*/.source;
}
""",
    "in/three.js": """export const three = 3;
export class Unused {
  #x = 1;
  get x() { return this.#x; }
}
""",
}


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with one board."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as own:
        yield own


async def test_no_script_of_a_page_imports_others(client: httpx.AsyncClient) -> None:
    """Each script of a page contains all that it imports, except what it loads later."""
    for path in ("/", "/boards/posts", "/overlay/posts"):
        scripts = re.findall(r'src="(/static/[^"]+)"', (await client.get(path)).text)
        assert len(scripts) == (2 if "overlay" in path else 1), scripts
        for script in scripts:
            text = (await client.get(script)).text
            assert not re.search(r'\bimport\b(?!\("./(?:later|listed|client/))|@param', text), script


async def test_files_are_compressed_for_clients_that_accept_it(client: httpx.AsyncClient) -> None:
    """Compressed or not, a file has the same content. Caches keep both forms apart."""
    html = (await client.get("/boards/posts")).text
    for file in re.findall(r'(?:href|src)="(/static/[^"]+)"', html):
        plain = await client.get(file, headers={"Accept-Encoding": "identity"})
        refused = await client.get(file, headers={"Accept-Encoding": "br, gzip;q=0"})
        assert "content-encoding" not in refused.headers
        async with client.stream("GET", file, headers={"Accept-Encoding": "br, gzip"}) as packed:
            body = b"".join([piece async for piece in packed.aiter_raw()])
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        assert gzip.decompress(body) == plain.content
        assert len(body) < len(plain.content) or len(plain.content) < 300


@pytest.mark.parametrize("name", ["../pyproject.toml", "%2e%2e/pyproject.toml", "client", "client/", "none.js", "x"])
async def test_nothing_else_is_served(client: httpx.AsyncClient, name: str) -> None:
    """Folders, missing files and files outside of the folder are not found."""
    html = (await client.get("/")).text
    (style_sheet,) = re.findall(r'href="(/static/[^"]+)board\+page\+cards.css"', html)
    assert (await client.get(style_sheet + name)).status_code == 404


_ODD_NAMES: Final = (
    "a%00.js", "%00", "a" * 300 + ".js", "a/" * 2000 + "a.js", "%ed%a0%80.js", "%ff.css", "a%0a.js", "a\\b.js", ".js",
    "board.js/a.js", "board+" * 500 + "record.css", "%2e%2e%2f" * 50 + "a.js", "con.js", "board.js%00.css", "*.js",
)  # fmt: skip


@pytest.mark.parametrize("folder", ["static/", "client/"])
async def test_no_name_of_a_file_is_an_error(client: httpx.AsyncClient, folder: str) -> None:
    """The operating system takes neither a zero byte nor a very long name."""
    if folder == "static/":
        html = (await client.get("/")).text
        (folder,) = re.findall(r'href="/(static/[^"]+)board\+page\+cards.css"', html)
    statuses = {name[:20]: (await client.get(f"/{folder}{name}")).status_code for name in _ODD_NAMES}
    assert statuses == dict.fromkeys(statuses, 404)
    assert len(statuses) == len(_ODD_NAMES)


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_a_bundle_does_what_its_modules_do(tmp_path: Path) -> None:
    """Each module runs once, before the modules that import it.

    Comments are removed, but not texts that look like comments.
    """
    made = bundle("entry.js", MODULES.__getitem__)
    assert "comment. " not in made
    assert made.count("=3;") == 1
    (tmp_path / "made.mjs").write_text(made)
    done = subprocess.run([str(NODE), tmp_path / "made.mjs"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == '[{"a":"// no comment","b":"x  y 3"},"3\\\\/\\\\*",3,1,5]\n'


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_the_scripts_of_the_pages_are_valid(entry: str, tmp_path: Path) -> None:
    """The scripts import only scripts that are loaded later, and do not contain the words of other languages."""
    made = page_script(*ENTRIES[entry])
    (tmp_path / "made.mjs").write_text(made)
    done = subprocess.run([str(NODE), "--check", tmp_path / "made.mjs"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    name = entry.rpartition("/")[2]
    assert re.findall(r'\bimport(?:\(|\{[^}]*\}from)"(.+?)"', made) == LATER.get(name, [])
    assert "export" in made
    if name in LATER and name in SCRIPTS:
        assert ("⟨blank⟩" in made, "⟨空白⟩" in made) == (entry.startswith("en/"), entry.startswith("zh-Hans/"))


def test_what_is_loaded_later_and_the_core_of_the_client_are_small() -> None:
    """The compressed sizes have limits. The script that is loaded later does not repeat words of the first script."""
    later = page_script("en", "later.js")
    assert len(gzip.compress(later.encode())) <= MOST_LATER
    assert "⟨blank⟩" not in later
    assert len(gzip.compress(bundle("client/live-board.js", read).encode())) <= MOST_CORE


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ({"x.js": 'import all from "./y.js", 5;\n'}, "import all from"),
        ({"x.js": "export default 5;\n"}, "export default"),
        ({"x.js": "const f = () => void (a() && b());\n"}, "void (a() && b())"),
        (
            {"x.js": "const f = (a) => {\nconst b = a();\nconst { c } = (b).d;\nreturn [b, c];\n};\n"},
            "before its declaration",
        ),
        ({"x.js": 'import { a as b } from "./y.js";\n', "y.js": "export const a = 1;\n"}, "does not export a as b"),
        (
            {"x.js": 'import { a } from "./y.js";\nlet b;\n', "y.js": "export const a = 1;\nconst b = 2;\n"},
            "`b` is also",
        ),
    ],
)
def test_an_unknown_form_of_import_is_refused(modules: dict[str, str], reason: str) -> None:
    """The server refuses to bundle the script, which would fail in the browser."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        bundle("x.js", modules.__getitem__)


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_separate_modules_are_imported(tmp_path: Path) -> None:
    """Two bundles can share the instance of a module, and export what it exports."""
    modules = {
        "in/entry.js": """import { two } from "./t.js";
export { one } from "../one.js";
export let all = two + 1;
""",
        "in/t.js": 'import { one } from "../one.js";\nexport const two = one + 1;\n',
    }
    (tmp_path / "in").mkdir()
    (tmp_path / "one.js").write_text("export const one = 1;\n")
    (tmp_path / "in" / "entry.js").write_text(bundle("in/entry.js", modules.__getitem__, {"one.js"}))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "main.js").write_text('import { all, one } from "./in/entry.js";\nconsole.log(all * one);\n')
    done = subprocess.run([str(NODE), tmp_path / "main.js"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_a_script_shares_its_modules_with_those_that_it_loads_later(tmp_path: Path) -> None:
    """Each module runs once. The first script exports only what the later script needs."""
    modules = {
        "first.js": 'import { one } from "./one.js";\none.push(1);\nvoid import("./next.js");\n',
        "next.js": 'import { one } from "./one.js";\nimport { two } from "./two.js";\nconsole.log([...one, two]);\n',
        "one.js": "export const one = [0];\nexport const none = 0;\n",
        "two.js": "export const two = 2;\n",
    }
    for name, text in split_bundle("first.js", ["next.js"], modules.__getitem__).items():
        (tmp_path / name).write_text(text)
    assert "none}" not in (tmp_path / "first.js").read_text()
    (tmp_path / "package.json").write_text('{"type": "module"}')
    done = subprocess.run([str(NODE), tmp_path / "first.js"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[ 0, 1, 2 ]\n"), done.stderr
    with pytest.raises(ValueError, match="`one` is also declared in another"):
        split_bundle("first.js", ["next.js"], {**modules, "next.js": modules["next.js"] + "let one = 3;\n"}.__getitem__)


async def test_the_style_sheets_of_a_page_are_one_file(client: httpx.AsyncClient) -> None:
    """A path names each sheet at most once, and the sheets in one fixed order.

    So nobody can make the server keep many files.
    """
    html = (await client.get("/boards/posts")).text
    html = re.sub("<noscript>.*?</noscript>", "", html, flags=re.DOTALL)
    (path,) = re.findall(r'<link rel="stylesheet" href="(/static/[^"]+\.css)"', html)
    assert path.endswith("/board+page.css")
    folder = path.rpartition("/")[0]
    found = await client.get(f"{folder}/board+admin.css")
    assert found.headers["content-type"] == "text/css; charset=utf-8"
    parts = [(await client.get(f"{folder}/{name}.css")).text for name in ("board", "admin")]
    assert found.text == "".join(parts)
    for name in ("admin+board", "board+board", "board+none", "board+past", "+board", "board+"):
        assert (await client.get(f"{folder}/{name}.css")).status_code == 404
    rules = {
        "contest": ".podium small{", "page": ".find{", "record": ".figures{", "cards": ".cards{", "late": ".why{"
    }  # fmt: skip
    texts = {name: (await client.get(f"{folder}/{name}.css")).text for name in rules}
    for part, rule in rules.items():
        assert [name for name, text in texts.items() if rule in text] == [part]


def test_a_style_sheet_loses_comments_and_keeps_its_rules() -> None:
    """Spaces that mean something stay."""
    made = style("/* gone */\na :is(b) > c {\n  width: calc(1px + 2em);\n}\n")
    assert made == "a :is(b)>c{width:calc(1px + 2em)}"
    assert style("@container (min-width: 1px) {\n  a > b { top: 0; }\n}\n") == "@container(min-width:1px){a>b{top:0}}"


@pytest.mark.parametrize("path", sorted(assets("static").glob("*.css")), ids=lambda path: path.name)
def test_descendants_stay_descendants(path: Path) -> None:
    """The compressed style keeps each space before `:is` and the like, which stands for a descendant.

    Inside of `@container`, this space would be lost: write `>` there.
    """
    before_pseudo_class = re.compile(r"[^\s>+~,{};(]\s:(?:is|not|has|where)\(")
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    made = style(text)
    assert len(before_pseudo_class.findall(made)) == len(before_pseudo_class.findall(text))
