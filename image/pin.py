"""Writes the requirements of the image: every package with its version and the hashes of its wheels.

The versions are those of constraints.txt, the wheels those for Linux on x86_64 and aarch64. Run it with `make pin`.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
ARCHITECTURES: Final = ("x86_64", "aarch64")
EXTRAS: Final = ("load", "parquet", "postgres")  # what the image contains besides the server
WITHOUT_WHEEL: Final = {"aarch64": ("load",)}  # extras that need a package without a wheel for this architecture
GLIBC: Final = range(36, 4, -1)  # minor versions of glibc 2 whose wheels the base image runs, the newest first
HEAD: Final = "# Made by `make pin` from constraints.txt: {}.\n"


def main() -> None:
    """Write both files."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = whole["project"]
    needed = {
        architecture: [
            *project["dependencies"],
            *(
                package
                for extra in EXTRAS
                if extra not in WITHOUT_WHEEL.get(architecture, ())
                for package in project["optional-dependencies"][extra]
            ),
        ]
        for architecture in ARCHITECTURES
    }
    write("requirements.txt", "what the server needs", needed)
    build = dict.fromkeys(ARCHITECTURES, whole["build-system"]["requires"])
    write("build.txt", "what builds the wheel of the server", build)


def write(name: str, what: str, wanted: dict[str, list[str]]) -> None:
    """Write one file of requirements. A package for only one architecture gets a marker that names it."""
    found = {
        architecture: {
            f"{package['metadata']['name'].lower()}=={package['metadata']['version']}": package
            for package in resolve(wanted[architecture], architecture)
        }
        for architecture in ARCHITECTURES
    }
    hashes: dict[str, set[str]] = {}
    for pin in {pin for packages in found.values() for pin in packages}:
        having = [architecture for architecture in ARCHITECTURES if pin in found[architecture]]
        marked = pin if len(having) == len(ARCHITECTURES) else f'{pin} ; platform_machine == "{having[0]}"'
        archives = (found[architecture][pin]["download_info"]["archive_info"] for architecture in having)
        hashes[marked] = {archive["hashes"]["sha256"] for archive in archives}
    lines = [
        " \\\n    ".join([package, *(f"--hash=sha256:{value}" for value in sorted(hashes[package]))])
        for package in sorted(hashes)
    ]
    (ROOT / "image" / name).write_text(HEAD.format(what) + "\n".join(lines) + "\n")


def resolve(wanted: list[str], architecture: str) -> list[dict[str, Any]]:
    """List the packages that pip would install in the image, from wheels only."""
    platforms = [f"manylinux_2_{minor}_{architecture}" for minor in GLIBC]
    platforms += [f"{tag}_{architecture}" for tag in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [
                sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run",
                "--ignore-installed", "--target", folder, "--only-binary", ":all:", "--python-version", "3.11",
                "--implementation", "cp", "--abi", "cp311", "--abi", "abi3", "--abi", "none",
                *(part for platform in platforms for part in ("--platform", platform)),
                "--constraint", str(ROOT / "constraints.txt"), "--report", str(report), *wanted,
            ],
            check=True,
        )  # fmt: skip
        installed: list[dict[str, Any]] = json.loads(report.read_text())["install"]
        return installed


if __name__ == "__main__":
    main()
