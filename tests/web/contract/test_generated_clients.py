"""Other tools find /openapi.json and /asyncapi.json valid, and generate working clients from /openapi.json."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[3]
TOOLS: Final = ROOT / ".tools"
GIVEN: Final = ROOT / "tests" / "tools"
PYTHON: Final = TOOLS / "python" / "bin"
NODE: Final = TOOLS / "node_modules" / ".bin"

needs_python = pytest.mark.skipif(not PYTHON.exists(), reason="tests/install-tools.sh has not been run")
needs_node = pytest.mark.skipif(not NODE.exists(), reason="Node.js is not installed, or tests/install-tools.sh not run")


@pytest.fixture(scope="module")
def server(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server process."""
    process = ServerProcess(fresh_settings(valkey_url), tmp_path_factory.mktemp("server"))
    process.start()
    yield process.url
    assert process.stop() == 0


@pytest.fixture(scope="module")
def document(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The served document in a file."""
    path = tmp_path_factory.mktemp("document") / "openapi.json"
    path.write_bytes(httpx.get(f"{server}/openapi.json").raise_for_status().content)
    return path


def run(*command: object, cwd: Path, **environment: str) -> str:
    """Run a tool that must succeed; returns its output."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_python
def test_openapi_spec_validator_finds_nothing(document: Path) -> None:
    """The document follows the schema of OpenAPI 3.1, including defaults and references."""
    run(PYTHON / "openapi-spec-validator", document, cwd=document.parent)


@pytest.fixture(scope="module")
def findings(server: str, document: Path) -> dict[str, list[str]]:
    """Return what the linters find in each document, by its name. `wrong-…` are documents with a mistake."""
    folder = document.parent
    (folder / "node_modules").symlink_to(TOOLS / "node_modules")
    (folder / "lint.mjs").write_text((GIVEN / "lint.mjs").read_text())
    asyncapi = httpx.get(f"{server}/asyncapi.json").raise_for_status().json()
    (folder / "asyncapi.json").write_text(json.dumps(asyncapi))
    asyncapi["info"]["license"]["identifier"] = "MIT"
    (folder / "wrong-asyncapi.json").write_text(json.dumps(asyncapi))
    openapi = json.loads(document.read_text())
    openapi["info"]["title"] = 1
    (folder / "wrong-openapi.json").write_text(json.dumps(openapi))
    names = ["openapi.json", "asyncapi.json", "wrong-openapi.json", "wrong-asyncapi.json"]
    found: dict[str, list[str]] = json.loads(run("node", "lint.mjs", *names, cwd=folder))
    assert sorted(found) == sorted(names)
    return found


@needs_node
@pytest.mark.parametrize("name", ["openapi.json", "asyncapi.json"])
def test_linters_find_nothing(findings: dict[str, list[str]], name: str) -> None:
    """The parser of AsyncAPI accepts its document. The recommended rules of Spectral and Redocly give no warning."""
    assert findings[name] == []


@needs_node
@pytest.mark.mutant
@pytest.mark.parametrize(
    ("name", "tools"),
    [("wrong-openapi.json", {"spectral", "redocly"}), ("wrong-asyncapi.json", {"parser", "spectral", "redocly"})],
)
def test_linters_notice_a_mistake(findings: dict[str, list[str]], name: str, tools: set[str]) -> None:
    """Each linter notices a title that is no text, and an unknown field of the license."""
    assert {finding.partition(":")[0] for finding in findings[name] if "info" in finding} == tools


@needs_python
def test_a_generated_python_client_posts_and_reads(server: str, document: Path, tmp_path: Path) -> None:
    """The generator drops no operation. It warns that it supports neither lines of JSON nor pictures."""
    generated = tmp_path / "generated"
    output = run(
        PYTHON / "openapi-python-client", "generate", "--path", document, "--output-path", generated,
        "--meta", "none", "--config", GIVEN / "generator.yaml", cwd=tmp_path,
    )  # fmt: skip
    assert output.count("Unsupported content type application/") == 2
    assert output.count("Unsupported content_type image/svg+xml") == 1
    assert output.count("WARNING") == 3
    made = {path.stem.replace("_", "") for path in (generated / "api").glob("*/*.py")}
    assert {name.lower() for name in operations(document)} <= made
    printed = run(sys.executable, GIVEN / "client.py", server, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert printed.startswith("2 ")
    assert "from Python 4" in printed


@needs_node
def test_a_generated_typescript_client_posts_and_reads(server: str, document: Path, tmp_path: Path) -> None:
    """The client compiles in strict mode, and every operation has types."""
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "client.ts").write_text((GIVEN / "client.ts").read_text())
    run(NODE / "openapi-typescript", document, "--output", "schema.d.ts", cwd=tmp_path)
    types = (tmp_path / "schema.d.ts").read_text()
    assert [name for name in operations(document) if f"    {name}: {{" not in types] == []
    run(
        NODE / "tsc", "--strict", "--skipDefaultLibCheck", "--target", "es2022", "--module", "nodenext",
        "--lib", "es2022,dom", "client.ts", cwd=tmp_path,
    )  # fmt: skip
    printed = run("node", "client.js", server, cwd=tmp_path)
    assert printed.startswith("1 ")
    assert "from TypeScript 3" in printed


def operations(document: Path) -> list[str]:
    """The names of all operations of the document."""
    paths = json.loads(document.read_text())["paths"]
    return [operation["operationId"] for methods in paths.values() for operation in methods.values()]
