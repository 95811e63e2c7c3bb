"""A certificate for servers of tests."""

import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

OPENSSL: Final = shutil.which("openssl") or ""


class Certificate(NamedTuple):
    """A self-signed certificate, which is its own authority, and its private key."""

    path: Path
    key: Path


def make_certificate(folder: Path) -> Certificate:
    """Make a certificate for localhost and 127.0.0.1."""
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", made.key, "-out", made.path],
        check=True, capture_output=True,
    )  # fmt: skip
    return made
