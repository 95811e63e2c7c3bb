"""Gives the project a version: `python packages/release.py 0.2.0`.

A release also closes the section "Unreleased" of the changelog. A version such as 0.3.0.dev0 leaves it open.

`--dry-run 0.2.0` changes nothing. It makes, builds and checks the release in a temporary copy, and prints what to do
next.

The workflow of a release runs the other three. Do not commit what they change:

- `--check v0.2.0` refuses a tag that is not the version of the files.
- `--address https://… v0.2.0` writes the address of the repository into the files of the packages.
- `--build FOLDER` builds what is published: the packages, the list of their parts (SBOM), and the notes.

`make check` installs what `--dry-run` and `--build` need: call them with `.venv/bin/python`.
"""

import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

VERSION: Final = re.compile(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?")
# Where the version is: a file, and the text before it.
PLACES: Final = (
    ("live/__init__.py", '__version__ = "'),
    ("deploy/kubernetes/own-store/kustomization.yaml", 'newTag: "'),
    ("deploy/kubernetes/external-store/kustomization.yaml", 'newTag: "'),
)
MANIFEST: Final = "static/client/package.json"
OPEN: Final = "## [Unreleased]\n"
PROJECTS: Final = ("pyproject.toml", "packages/client/pyproject.toml")
DESCRIPTIONS: Final = ("README.md", "CHANGELOG.md", "packages/client/README.md", "static/client/README.md")
RELATIVE: Final = re.compile(r"""(\]\(|\bsrc(?:set)?=")(?![a-z]+:|[#/])([^)"\s]+)""")
PICTURES: Final = (".webp", ".svg", ".png")
NEXT: Final = """
Everything passed. If you ran `make check test image` too, release it:

  python packages/release.py {version}
  git commit --all --message 'Release {version}'
  git tag --sign --message 'Release {version}' v{version}
  git push --atomic origin HEAD v{version}
"""


def npm_version(version: str) -> str:
    """The version as npm writes it: 0.2.0-dev.0 for 0.2.0.dev0."""
    return re.sub(r"\.?(dev|rc)(\d+)$", r"-\1.\2", version)


def release(root: Path, version: str) -> None:
    """Write the version into every file that has it."""
    if not VERSION.fullmatch(version):
        raise SystemExit(f"{version!r} is not a version: write 0.2.0, 0.2.0rc1 or 0.3.0.dev0")
    for name, before in PLACES:
        path = root / name
        text, count = re.subn(
            f"({re.escape(before)}){VERSION.pattern}", rf"\g<1>{version}", path.read_text(encoding="utf-8")
        )
        if count != 1:
            raise SystemExit(f"{name} should have the version once after {before!r}, and has it {count} times")
        path.write_text(text, encoding="utf-8")
    path = root / MANIFEST
    pattern = r'(?<="version": ")[^"]+'
    path.write_text(re.sub(pattern, npm_version(version), path.read_text(encoding="utf-8")), encoding="utf-8")
    if "dev" not in version:
        path = root / "CHANGELOG.md"
        text = path.read_text(encoding="utf-8")
        cut = f"{OPEN}\n## [{version}] - {datetime.now(UTC):%Y-%m-%d}\n"
        path.write_text(text.replace(OPEN, cut, 1), encoding="utf-8")


def check(root: Path, tag: str) -> None:
    """Refuse a tag that is not the version of the files, or that the changelog does not describe."""
    version = tag.removeprefix("v")
    wrong = [name for name, before in PLACES if f"{before}{version}" not in (root / name).read_text(encoding="utf-8")]
    if json.loads((root / MANIFEST).read_text(encoding="utf-8"))["version"] != npm_version(version):
        wrong.append(MANIFEST)
    if f"\n## [{version}] - " not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        wrong.append("CHANGELOG.md")
    if wrong:
        raise SystemExit(f"{tag} is not the version in {', '.join(wrong)}: run `python packages/release.py {version}`")


def write_address(root: Path, address: str, tag: str) -> None:
    """Name the repository in the packages. Links and pictures of their descriptions lead to the files of the tag."""
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", address):
        raise SystemExit(f"{address!r} is not the address of a repository: write https://host/owner/name")
    files = f"{address}/blob/{tag}"
    urls = (
        f'[project.urls]\nRepository = "{address}"\nDocumentation = "{files}/docs/index.md"\n'
        f'Changelog = "{files}/CHANGELOG.md"\nIssues = "{address}/issues"\n\n'
    )
    for name in PROJECTS:
        path = root / name
        text = path.read_text(encoding="utf-8")
        if "[project.urls]" in text:
            raise SystemExit(f"{name} has an address already")
        path.write_text(re.sub(r"^(?=\[tool\.)", lambda _: urls, text, count=1, flags=re.MULTILINE), encoding="utf-8")
    for name in DESCRIPTIONS:
        path = root / name
        folder = "/".join(name.split("/")[:-1])

        def absolute(found: re.Match[str], folder: str = folder) -> str:
            kind = "raw" if found[2].endswith(PICTURES) else "blob"
            return f"{found[1]}{address}/{kind}/{tag}/{posixpath.normpath(f'{folder}/{found[2]}').lstrip('/')}"

        path.write_text(RELATIVE.sub(absolute, path.read_text(encoding="utf-8")), encoding="utf-8")
    path = root / MANIFEST
    licence = '  "license": "MIT",\n'
    repository = {"type": "git", "url": f"git+{address}.git", "directory": MANIFEST.rpartition("/")[0]}
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(licence, f'{licence}  "repository": {json.dumps(repository)},\n', 1), encoding="utf-8")


def notes(root: Path, version: str) -> str:
    """Return the section of the changelog, which the page of a release shows."""
    title = "Unreleased" if "dev" in version else version
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[{re.escape(title)}\].*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        raise SystemExit(f"CHANGELOG.md says nothing about {version}: write what is new under {OPEN.strip()}")
    return section[1].strip() + "\n"


def build(root: Path, folder: Path) -> None:
    """Build the Python packages in the folder `python`, and write the list of their parts (SBOM)."""
    python = folder / "python"
    version = version_of(root)
    uv = (tool("uv"), "build", "--quiet", "--build-constraints", "constraints.txt", "--out-dir", str(python))
    run(root, *uv, ".")  # the sdist, and from that the wheel
    run(root, *uv, "--wheel", "packages/client")
    (python / ".gitignore").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "pyproject.toml"
        text = (root / "pyproject.toml").read_text(encoding="utf-8")
        project.write_text(text.replace('dynamic = ["version"]', f'version = "{version}"', 1), encoding="utf-8")
        run(
            root, tool("cyclonedx-py"), "requirements", "image/requirements.txt", "--pyproject", str(project),
            "--output-reproducible", "--output-file", str(folder / f"live-board-{version}.cdx.json"),
        )  # fmt: skip


def pack(root: Path, folder: Path) -> None:
    """Write the notes, and build the npm package in the folder `npm`."""
    (folder / "notes.md").write_text(notes(root, version_of(root)), encoding="utf-8")
    if shutil.which("npm"):
        npm = folder / "npm"
        npm.mkdir()
        run(root, "npm", "pack", "./static/client", "--silent", "--pack-destination", str(npm))
    else:
        sys.stderr.write("Skipped: the npm package, which needs npm.\n")


def dry_run(root: Path, version: str) -> None:
    """Make, build and check a release in a copy of the checkout, which must have no changes of its own."""
    tag = f"v{version}"
    if "dev" in version:
        raise SystemExit(f"{version} is a version in development, which nobody publishes: write 0.2.0 or 0.2.0rc1")
    if changed := run(root, "git", "status", "--porcelain"):
        raise SystemExit(f"Commit these changes first:\n{changed}")
    if run(root, "git", "tag", "--list", tag):
        raise SystemExit(f"{tag} is released already")
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "checkout"
        run(root, "git", "clone", "--quiet", "--shared", str(root.resolve()), str(copy))
        if (root / ".tools").exists():
            (copy / ".tools").symlink_to((root / ".tools").resolve())  # the compiler of the npm package's types
        release(copy, version)
        check(copy, tag)
        lines = run(copy, "git", "diff", "--no-color", "--no-prefix", "--unified=0").splitlines()
        shown = [line for line in lines if line.startswith(("+", "-")) and not line.startswith("---")]
        say(f"The version {version} changes:", *(line.replace("+++ ", "\n", 1) for line in shown), "")
        write_address(copy, "https://example.com/owner/live-board", tag)
        made = copy / "build" / "release"
        build(copy, made)
        pack(copy, made)
        files = sorted(path for path in made.rglob("*") if path.is_file())
        say("It publishes:", "", *(f"{path.stat().st_size >> 10:6} kB  {path.relative_to(made)}" for path in files), "")
        say("It is installed in empty environments:", "")
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_package.py"]
        if subprocess.run(tests, cwd=copy, env={**os.environ, "TEST_PACKAGES": str(made)}, check=False).returncode:
            raise SystemExit("These packages must not be published.")
    say(NEXT.format(version=version))


def version_of(root: Path) -> str:
    """Return the version of a checkout."""
    name, before = PLACES[0]
    return re.findall(f'^{before}(.+)"$', (root / name).read_text(encoding="utf-8"), re.MULTILINE)[0]


def tool(name: str) -> str:
    """Return the path of a program of this virtual environment."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise SystemExit(f"Missing: {name}. Run `make check`, and then .venv/bin/python {' '.join(sys.argv)}")
    return str(path)


def run(folder: Path, *command: str) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def say(*lines: str) -> None:
    """Print lines at once, before a command prints its own."""
    print(*lines, sep="\n", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--dry-run", version]:
            dry_run(Path(), version)
        case ["--build", folder]:
            build(Path(), Path(folder).absolute())
            pack(Path(), Path(folder).absolute())
        case ["--address", address, tag]:
            write_address(Path(), address, tag)
        case ["--check", tag]:
            check(Path(), tag)
        case [version]:
            release(Path(), version)
        case _:
            raise SystemExit(__doc__)
