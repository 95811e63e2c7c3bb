"""The kept frames of boards in SQL."""

from pathlib import Path

from live.domain.footage import Footage, KeptFrame
from live.journal.database import Database
from live.journal.footage import FootageReader, FootageWriter
from live.settings import Settings


def piece(number: int) -> Footage:
    """A second of a board, with a snapshot."""
    began = 1_900_000_000_000 + 1000 * number
    frames = [KeptFrame(began, "sync", b"{}", f"e:{number}"), KeptFrame(began + 1, "update", b"{}", f"e:{number + 1}")]
    return Footage(
        board="posts", epoch="e", first=number, last=number + 1, snapshot=1, is_cut=False,
        began=began, ended=began + 1, frames=frames,
    )  # fmt: skip


async def test_a_piece_is_kept_once_if_the_reply_is_lost(tmp_path: Path) -> None:
    """The recorder keeps a piece again if it does not know whether it was committed."""
    with Database("sqlite", tmp_path, "live", writes=True) as database:
        database.take_now()
        writer = FootageWriter(database)
        await writer.keep([piece(1)])
        await writer.keep([piece(1), piece(3)])
    reader = FootageReader(Settings(data_dir=tmp_path))
    found = await reader.after("posts", "e", 0)
    await reader.aclose()
    assert [(kept.first, kept.last, kept.frames) for kept in found] == [
        (made.first, made.last, made.frames) for made in (piece(1), piece(3))
    ]
