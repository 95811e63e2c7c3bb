"""Writes a page of tickets to print: twelve on a sheet, each with a QR code, a code to type and a number."""

import io
from html import escape
from pathlib import Path
from typing import Final

import segno

from live.auth.tickets import code_of, whole_code_of
from live.system.files import replacing

_ON_A_SHEET: Final = 12
_STYLE: Final = """
@page { size: A4; margin: 10mm; }
body { margin: 0; font: 10pt/1.35 sans-serif; color: #000; background: #fff; }
section { display: grid; grid-template: repeat(4, 66mm) / repeat(3, 1fr); break-after: page; }
article { border: .2mm dashed #999; padding: 3mm; text-align: center; overflow: hidden; overflow-wrap: anywhere; }
svg { width: 34mm; height: 34mm; }
h2 { margin: 0; font-size: 10pt; }
p { margin: 1mm 0 0; }
b { font: bold 13pt monospace; letter-spacing: .5mm; }
"""


def write_sheet(path: Path, secret: str, board: str, count: int, server: str) -> None:
    """Write the first tickets of a board. `server` is the address that their QR codes open.

    Raises:
        OSError: the file can't be written.
    """
    place = escape(f"{server.partition('://')[2]}/t")
    with replacing(path) as file:
        title = f"{escape(board)}: {count:,} tickets"
        head = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        file.write(f"{head}<style>{_STYLE}</style>\n".encode())
        for first in range(1, count + 1, _ON_A_SHEET):
            file.write(b"<section>\n")
            for number in range(first, min(first + _ON_A_SHEET, count + 1)):
                code = code_of(secret, board, number)
                lines = (
                    f"<article><h2>{escape(board)} · {number}</h2>",
                    _picture(f"{server}/t?code={whole_code_of(secret, board, number)}"),
                    f"<p><b>{code[:4]}-{code[4:]}</b></p><p>Scan it, or type the letters at {place}</p></article>\n",
                )
                file.write("".join(lines).encode())
            file.write(b"</section>\n")


def _picture(text: str) -> str:
    drawn = io.BytesIO()
    code = segno.make(text, error="m", micro=False)
    code.save(drawn, kind="svg", xmldecl=False, svgns=False, dark="#000", light=None, border=2, omitsize=True)
    return drawn.getvalue().decode().strip()
