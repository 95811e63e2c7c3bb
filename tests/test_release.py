"""How a version is made and published: each file has the version, and each workflow runs only pinned actions."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from live import __version__

ROOT: Final = Path(__file__).parent.parent
FILES: Final = (
    "live/__init__.py", "static/client/package.json", "deploy/kubernetes", "CHANGELOG.md", "packages/release.py",
    "pyproject.toml", "packages/client", "README.md", "static/client/README.md",
)  # fmt: skip
WORKFLOWS: Final[dict[str, dict[Any, Any]]] = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / ".github" / "workflows").glob("*")
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with copies of the files that contain the version."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    return tmp_path


def release(checkout: Path, *words: str) -> str:
    """Run `packages/release.py`, and return what it prints to standard error."""
    command = [sys.executable, "packages/release.py", *words]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False).stderr


def test_a_release_changes_every_file_and_closes_the_changelog(checkout: Path) -> None:
    """After a release, only its own tag passes `--check`. A version in development leaves the changelog open."""
    log = checkout / "CHANGELOG.md"
    before = log.read_text(encoding="utf-8")
    assert "is not the version in" in release(checkout, "--check", "v7.8.9")
    assert release(checkout, "7.9.0.dev0") == ""
    assert log.read_text(encoding="utf-8") == before
    assert json.loads((checkout / "static/client/package.json").read_text(encoding="utf-8"))["version"] == "7.9.0-dev.0"
    assert release(checkout, "7.8.9") == ""
    assert re.search(r"^## \[Unreleased\]\n\n## \[7\.8\.9\] - \d{4}-\d\d-\d\d$", log.read_text("utf-8"), re.MULTILINE)
    assert release(checkout, "--check", "v7.8.9") == ""
    files = [path for path in checkout.rglob("*") if path.is_file() and path.name not in {log.name, "release.py"}]
    assert [path for path in files if __version__ in path.read_text(encoding="utf-8")] == []
    for wrong in ("7.8", "v7.8.9", "7.8.9; true"):
        assert "is not a version" in release(checkout, wrong)


def test_the_packages_of_a_release_name_the_repository(checkout: Path) -> None:
    """Both Python packages and the npm package have the address of the repository.

    Links and pictures in descriptions have absolute addresses, and their targets exist.
    """
    address = "https://host.example/owner/name"
    assert release(checkout, "--address", address, "v7.8.9") == ""
    for name in ("pyproject.toml", "packages/client/pyproject.toml"):
        project = tomllib.loads((checkout / name).read_text(encoding="utf-8"))["project"]
        assert project["urls"]["Repository"] == address
        assert project["urls"]["Changelog"] == f"{address}/blob/v7.8.9/CHANGELOG.md"
    manifest = json.loads((checkout / "static/client/package.json").read_text(encoding="utf-8"))
    assert manifest["repository"]["url"] == f"git+{address}.git"
    found = []
    for name in ("README.md", "CHANGELOG.md", "packages/client/README.md", "static/client/README.md"):
        text = (checkout / name).read_text(encoding="utf-8")
        found += re.findall(r"""\]\(([^)]+)\)|src(?:set)?="([^"]+)""", text)
    links = [link or picture for link, picture in found]
    assert all(link.startswith(("https://", "#")) for link in links)
    own = [link.removeprefix(f"{address}/").partition("#")[0] for link in links if link.startswith(address)]
    assert {"raw/v7.8.9/docs/board-light.webp", "blob/v7.8.9/docs/install.md", "blob/v7.8.9/LICENSE"} <= set(own)
    assert all((ROOT / link.partition("/v7.8.9/")[2]).exists() for link in own)
    assert "has an address already" in release(checkout, "--address", address, "v7.8.9")
    assert "not the address" in release(checkout, "--address", "https://host.example", "v7.8.9")
    (building,) = [step["run"] for step in steps(WORKFLOWS["release.yml"]) if "--address" in step.get("run", "")]
    assert building.index("--address") < building.index("--build") < building.index("tests/test_package.py")


def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path: Path) -> None:
    """The notes end where the section before it begins. A release without notes is refused."""
    sections = (
        "# Changelog",
        "## [Unreleased]",
        "## [7.8.9] - 2026-12-01",
        "New.",
        "### Boards",
        "## [7.8.8] - 2026-11-01",
        "Old.",
    )
    (tmp_path / "CHANGELOG.md").write_text("\n\n".join(sections), encoding="utf-8")
    notes = runpy.run_path(str(ROOT / "packages" / "release.py"))["notes"]
    assert notes(tmp_path, "7.8.9") == "New.\n\n### Boards\n"
    assert notes(tmp_path, "7.8.8") == "Old.\n"
    for version in ("7.9.0.dev0", "7.8.7"):
        with pytest.raises(SystemExit, match="says nothing about"):
            notes(tmp_path, version)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the checkout")
@pytest.mark.timeout(900)
def test_a_dry_run_builds_and_checks_the_release_and_changes_nothing(tmp_path: Path) -> None:
    """It runs in a repository with the files of this checkout, as they are now. It refuses what is not committed."""
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")

    def at(*command: str) -> str:
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".tools").symlink_to(ROOT / ".tools")
    at(*git, "init", "--quiet")
    assert "Commit these changes first:\n?? " in release(tmp_path, "--dry-run", "7.8.9")
    at(*git, "add", "--all")
    at(*git, "commit", "--quiet", "--message", "a")
    at(*git, "tag", "v7.8.8")
    assert "v7.8.8 is released already" in release(tmp_path, "--dry-run", "7.8.8")
    assert "a version in development" in release(tmp_path, "--dry-run", "7.9.0.dev0")
    before = at("git", "rev-parse", "HEAD")

    # The tests of the packages take a minute, so here the dry run calls only those that install nothing.
    environment = {**os.environ, "PYTEST_ADDOPTS": "-k 'contains or metadata or parts'"}
    command = [sys.executable, "packages/release.py", "--dry-run", "7.8.9"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    printed = done.stdout
    assert done.returncode == 0, printed + done.stderr

    assert f'\nlive/__init__.py\n-__version__ = "{__version__}"\n+__version__ = "7.8.9"\n' in printed
    for name in ("live_board-7.8.9.tar.gz", "live_board_client-7.8.9-py3-none-any.whl", "live-board-7.8.9.cdx.json"):
        assert name in printed
    assert re.search(r"^3 passed, \d+ deselected in ", printed, re.MULTILINE)
    assert printed.endswith("git push --atomic origin HEAD v7.8.9\n\n")
    assert at("git", "status", "--porcelain") == ""
    assert (at("git", "rev-parse", "HEAD"), at("git", "tag")) == (before, "v7.8.8\n")


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    """Return all steps of a workflow."""
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_only_what_is_pinned_and_may_write_nothing(name: str) -> None:
    """Each action is named by its digest, with its version in a comment for people.

    Only a job that publishes has a right to write, and no right except the one that it needs.
    """
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used) for used in uses)
    for job, made in workflow["jobs"].items():
        given = {scope for scope, right in made.get("permissions", {}).items() if right == "write"}
        assert given == {
            "pypi": {"id-token"}, "npm": {"id-token"}, "image": {"packages"}, "github": {"contents"}
        }.get(job, set())  # fmt: skip
        assert ("environment" in made) is bool(given)
    # Other people choose some values, such as the names of branches. A step must not paste them into a shell.
    assert not [step["run"] for step in steps(workflow) if re.search(r"\$\{\{ *github", step.get("run", ""))]


def lint(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run zizmor on the workflows of a folder, without the network."""
    command = [str(Path(sys.executable).with_name("zizmor")), "--offline", "--strict-collection", "--no-progress"]
    return subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)


def test_the_workflows_have_no_fault_that_a_linter_finds(tmp_path: Path) -> None:
    """The linter finds nothing, but it finds an unknown key, and a title of a pull request that a shell would run."""
    found = lint(ROOT / ".github" / "workflows")
    assert found.returncode == 0, found.stdout + found.stderr
    workflow = tmp_path / ".github" / "workflows" / "ci.yml"
    workflow.parent.mkdir(parents=True)
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    for right, wrong in (
        ("runs-on:", "runs-in:"),
        ("run: make check", "run: echo ${{ github.event.pull_request.title }}"),
    ):
        assert right in text
        workflow.write_text(text.replace(right, wrong), encoding="utf-8")
        assert lint(tmp_path).returncode != 0, wrong


def test_only_a_tag_publishes_what_was_tested() -> None:
    """The build job first checks the version. The jobs that publish need it, and the page of the release needs them."""
    release_workflow = WORKFLOWS["release.yml"]
    assert release_workflow[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+*"]}}  # YAML reads the key `on` as true
    runs = [step.get("run", "") for step in release_workflow["jobs"]["build"]["steps"]]
    order = [
        next(index for index, run in enumerate(runs) if word in run) for word in ("--check", "make check", "build")
    ]
    assert order == sorted(order)
    needs = {name: job.get("needs") for name, job in release_workflow["jobs"].items()}
    assert needs == {
        "build": None,
        **dict.fromkeys(("pypi", "npm", "image"), "build"),
        "github": ["pypi", "npm", "image"],
    }
    image = " ".join(step.get("run", "") for step in release_workflow["jobs"]["image"]["steps"])
    assert "--sbom=true --provenance=mode=max --build-arg COMMIT=" in image
    audited = " ".join(step.get("run", "") for step in steps(WORKFLOWS["audit.yml"]))
    assert WORKFLOWS["audit.yml"][True]["schedule"]
    assert "image/requirements.txt" in audited
    assert "constraints.txt" in audited
