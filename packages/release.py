"""Gives the project a version: `python packages/release.py 0.2.0`, or `--check v0.2.0` before something is published.

A release also closes the section "Unreleased" of the changelog. A version such as 0.3.0.dev0 leaves it open.

`--address https://… v0.2.0` writes the address of the repository into the files of the packages, before they are built.
The workflow of a release runs it. Do not commit what it changes.
"""

import json
import posixpath
import re
import sys
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
DESCRIPTIONS: Final = ("README.md", "packages/client/README.md", "static/client/README.md")
RELATIVE: Final = re.compile(r"""(\]\(|\bsrc(?:set)?=")(?![a-z]+:|[#/])([^)"\s]+)""")
PICTURES: Final = (".webp", ".svg", ".png")


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


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--address", address, tag]:
            write_address(Path(), address, tag)
        case ["--check", tag]:
            check(Path(), tag)
        case [version]:
            release(Path(), version)
        case _:
            raise SystemExit(__doc__)
