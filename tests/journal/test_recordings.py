"""The kept frames of boards in SQL."""

from pathlib import Path

from live.domain.recording import RecordedFrame, RecordingPiece
from live.journal.database import Database
from live.journal.recordings import RecordingReader, RecordingWriter
from live.settings import Settings


def piece(number: int) -> RecordingPiece:
    """A second of a board, with a snapshot."""
    began = 1_900_000_000_000 + 1000 * number
    frames = [
        RecordedFrame(began, "sync", b"{}", f"e:{number}"),
        RecordedFrame(began + 1, "update", b"{}", f"e:{number + 1}"),
    ]
    return RecordingPiece(
        board="posts", epoch="e", first=number, last=number + 1, snapshot=1, is_cut=False,
        began=began, ended=began + 1, frames=frames,
    )  # fmt: skip


async def test_a_piece_is_kept_once_if_the_reply_is_lost(tmp_path: Path) -> None:
    """The recorder keeps a piece again if it does not know whether it was committed."""
    with Database("sqlite", tmp_path, "live", writes=True) as database:
        database.take_now()
        writer = RecordingWriter(database)
        await writer.keep([piece(1)])
        await writer.keep([piece(1), piece(3)])
    reader = RecordingReader(Settings(data_dir=tmp_path))
    found = await reader.after("posts", "e", 0)
    await reader.aclose()
    assert [(kept.first, kept.last, kept.frames) for kept in found] == [
        (made.first, made.last, made.frames) for made in (piece(1), piece(3))
    ]
