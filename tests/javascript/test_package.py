"""The client as a package for npm, as a project receives it."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from live import __version__
from live.web.static import CLIENT

ROOT: Final = Path(__file__).parents[2]
MODULES: Final = ROOT / ".tools" / "node_modules"
REACT: Final = MODULES / "@types" / "react"
NPM: Final = shutil.which("npm")
STRICT: Final = (
    "--strict", "--noEmit", "--skipDefaultLibCheck", "--target", "ES2022", "--module", "ES2022",
    "--moduleResolution", "bundler", "--jsx", "react-jsx",
)  # fmt: skip
CONSUMER: Final = """
import { LiveBoard, type Snapshot } from "live-board";
import { TableView } from "live-board/view";
import { Items } from "live-board/items";
import { setLanguage } from "live-board/words";
import { tag, words } from "live-board/words/zh-Hans";
import { LiveBoardElement } from "live-board/element";
import { useLiveBoard } from "live-board/react";

const board = new LiveBoard("https://host.example", "posts", { limit: 5, transports: ["sse"] });
const snapshot: Snapshot = board.snapshot;
const first: string | undefined = snapshot.records[0]?.key;
const view: TableView = new TableView(document.createElement("tbody"), { bars: true });
view.show(useLiveBoard("https://host.example", "posts", { member: "a" }).records);
setLanguage(tag, words);
new Items("https://host.example", () => view.body.rows).show();
const element: LiveBoardElement = document.createElement("live-board");
element.addEventListener("live-board-change", ({ detail }) => detail.records.length.toFixed());
document.querySelector("live-board")?.board?.pause();
import { like, Producer, type Result } from "live-board/producer";
const result: Promise<Result> = new Producer("https://host.example", { apiKey: "a.b" }).send({ key: "a", amount: 1 });
result.then(({ outcome }) => outcome === "accepted");
const isNew: Promise<boolean> = like("https://host.example", "cup", "a", { token: "t" });
export { first, isNew };
"""
COMPONENT: Final = """
import "live-board/element";

export const Top = () => (
  <live-board src="https://host.example/boards/posts" limit={5} theme="dark" member="a" className="top">
    <a href="https://host.example/boards/posts">The board</a>
  </live-board>
);
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        NPM is None or not (MODULES / "typescript").exists(), reason="npm or TypeScript is not installed"
    ),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what packing needs of the checkout, so that concurrent runs do not see each other's files."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "static" / "client", folder / "static" / "client")
    (folder / "tests" / "tools").mkdir(parents=True)
    for name in ("LICENSE", "tests/tools/tsconfig.json"):
        shutil.copy(ROOT / name, folder / name)
    (folder / ".tools").symlink_to(ROOT / ".tools")
    return folder


@pytest.fixture(scope="module")
def project(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with React and the packed client in `node_modules`. Packing leaves nothing behind."""
    folder = tmp_path_factory.mktemp("project")
    before = sorted(checkout.rglob("*"))
    run([str(NPM), "pack", "./static/client", "--offline", "--pack-destination", str(folder)], checkout)
    assert sorted(checkout.rglob("*")) == before
    run(["tar", "-xf", str(next(folder.glob("*.tgz")))], folder)
    (folder / "node_modules" / "@types").mkdir(parents=True)
    (folder / "package").rename(folder / "node_modules" / "live-board")
    for name in ("react", "react-dom", "@types/react", "@types/react-dom"):
        if (MODULES / name).exists():
            (folder / "node_modules" / name).symlink_to(MODULES / name)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def run(command: list[str], folder: Path) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def said(project: Path) -> list[str]:
    """Return what TypeScript says about right and wrong files.

    One run checks all files, because each run reads all libraries.
    """
    files = {"good.ts": CONSUMER, "bad.ts": CONSUMER.replace("limit: 5", 'limit: "5"')}
    if REACT.exists():
        files |= {"good.tsx": COMPONENT, "bad.tsx": COMPONENT.replace('"dark"', '"red"')}
    for name, text in files.items():
        (project / name).write_text(text)
    command = [str(MODULES / ".bin" / "tsc"), *STRICT, *files]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if "error TS" in line]


def test_the_package_contains_its_exports(project: Path) -> None:
    """The package has each entry point with its types, the words and the licence, but no tests.

    The package has the version of the server.
    """
    package = project / "node_modules" / "live-board"
    manifest = json.loads((package / "package.json").read_text())
    assert manifest["version"] == re.sub(r"\.(dev|rc)", r"-\1.", __version__)  # npm writes "-dev.3" for ".dev3"
    entries = {name: entry for name, entry in manifest["exports"].items() if "*" not in name}
    assert {entry["default"] for entry in entries.values()} == {f"./{name}" for name in CLIENT}
    for entry in entries.values():
        assert all((package / path).is_file() for path in entry.values())
    assert (package / "words" / "zh-Hans.js").is_file()
    files = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert {name for name in files if not name.endswith((".js", ".d.ts"))} == {"LICENSE", "README.md", "package.json"}
    assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_types_are_exact(said: list[str]) -> None:
    """A strict project can use the types, and a wrong option is an error."""
    assert [line.partition(",")[0] for line in said if "tsx" not in line] == ["bad.ts(10"]


@pytest.mark.skipif(not REACT.exists(), reason="the types of React are not installed")
def test_react_knows_the_element(said: list[str]) -> None:
    """JSX accepts the attributes of the element, and no other attributes."""
    assert [line.partition(",")[0] for line in said if "tsx" in line] == ["bad.tsx(5"]


def test_each_entry_can_be_imported_on_a_server(project: Path) -> None:
    """Without a document, the core works, and the React hook renders no records."""
    script = """
        import { createElement } from "react";
        import { renderToString } from "react-dom/server";
        import { LiveBoard } from "live-board";
        import { grouped } from "live-board/words";
        import { useLiveBoard } from "live-board/react";
        for (const entry of ENTRIES) await import(`live-board${entry}`);
        const Top = () => {
          const { records, state } = useLiveBoard("http://host.example", "posts", { limit: 3 });
          return createElement("p", { title: state.name }, records.length);
        };
        console.log(renderToString(createElement(Top)));
        const fetch = async () => Response.json({ title: "There is no such board" },
            { status: 404, headers: { "Content-Type": "application/problem+json" } });
        const board = new LiveBoard("http://host.example", "posts", { transports: ["poll"], fetch });
        board.start();
        await board.ready().catch(() => {});
        console.log(board.snapshot.state.name, grouped(1234));
    """
    package = json.loads((project / "node_modules" / "live-board" / "package.json").read_text())
    entries = [name.removeprefix(".") for name in package["exports"] if "*" not in name]
    script = script.replace("ENTRIES", json.dumps([*entries, "/words/zh-Hans"]))
    said = run([shutil.which("node") or "", "--input-type=module", "--eval", script], project)
    assert said == '<p title="idle">0</p>\nended 1,234\n'
