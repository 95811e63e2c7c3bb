"""The client as a package for npm, as a project receives it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from live import __version__
from live.web.http.static import CLIENT
from live.web.services import assets

TOOLS: Final = Path(__file__).parents[2] / ".tools" / "node_modules" / ".bin"
NPM: Final = shutil.which("npm")
CONSUMER: Final = """
import { LiveBoard, type Snapshot } from "live-board";
import { TableView } from "live-board/view";
import { setLanguage } from "live-board/words";
import { LiveBoardElement } from "live-board/element";
import { useLiveBoard } from "live-board/react";

const board = new LiveBoard("https://host.example", "posts", { limit: 5, transports: ["sse"] });
const snapshot: Snapshot = board.snapshot;
const first: string | undefined = snapshot.records[0]?.key;
const view: TableView = new TableView(document.createElement("tbody"), { bars: true });
view.show(useLiveBoard("https://host.example", "posts", { key: "a" }).records);
const element: LiveBoardElement = new LiveBoardElement();
export { element, first, setLanguage };
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NPM is None or not (TOOLS / "tsc").exists(), reason="npm or TypeScript is not installed"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the packed client in `node_modules`."""
    folder = tmp_path_factory.mktemp("project")
    source = folder / "source"
    shutil.copytree(assets("static") / "client", source)
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
    run([str(NPM), "pack", "--offline", "--pack-destination", str(folder)], source, {**os.environ, "PATH": path})
    packed = next(folder.glob("*.tgz"))
    shutil.unpack_archive(packed, folder, filter="data")
    (folder / "node_modules").mkdir()
    (folder / "package").rename(folder / "node_modules" / "live-board")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_contains_its_exports(project: Path) -> None:
    """Each entry point with its types, the words, and no tests. Its version is that of the server."""
    package = project / "node_modules" / "live-board"
    manifest = json.loads((package / "package.json").read_text())
    assert manifest["version"] == __version__
    assert {entry["default"] for entry in manifest["exports"].values()} == {f"./{name}" for name in CLIENT}
    for entry in manifest["exports"].values():
        assert all((package / path).is_file() for path in entry.values())
    assert (package / "words" / "zh-Hans.js").is_file()
    assert {path.suffix for path in package.rglob("*") if path.is_file()} == {".js", ".ts", ".json"}


def test_the_types_are_exact(project: Path) -> None:
    """A strict project can use them, and a wrong option is an error."""
    options = ["--strict", "--noEmit", "--target", "ES2022", "--module", "ES2022", "--moduleResolution", "bundler"]
    (project / "good.ts").write_text(CONSUMER)
    run([str(TOOLS / "tsc"), *options, "good.ts"], project)
    (project / "bad.ts").write_text(CONSUMER.replace("limit: 5", 'limit: "5"'))
    done = subprocess.run([TOOLS / "tsc", *options, "bad.ts"], cwd=project, capture_output=True, text=True, check=False)
    assert done.stdout.count("error TS") == 1
    assert "bad.ts(8," in done.stdout


def test_the_core_works_in_node(project: Path) -> None:
    """Without a document, imported by the name of the package."""
    script = """
        import { LiveBoard } from "live-board";
        import { grouped } from "live-board/words";
        const fetch = async () => Response.json({ title: "There is no such board" },
            { status: 404, headers: { "Content-Type": "application/problem+json" } });
        const board = new LiveBoard("http://host.example", "posts", { transports: ["poll"], fetch });
        board.start();
        await board.ready().catch(() => {});
        console.log(board.snapshot.state.name, grouped(1234));
    """
    assert run(["node", "--input-type=module", "--eval", script], project) == "ended 1,234\n"
