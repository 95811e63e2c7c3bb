"""The bodies of event streams: plain, or as one gzip stream whose blocks all streams share."""

from live.fanout.engine.deflate import GzipStream
from live.fanout.frames import Frame


class PlainEvents:
    """Events as they are."""

    encoding: str | None = None

    def begin(self, text: bytes) -> bytes:
        """The bytes of the first text."""
        return text

    def encode(self, frame: Frame) -> bytes:
        """The bytes of a frame."""
        return frame.event

    def finish(self, text: bytes) -> bytes:
        """The bytes of the last text."""
        return text


class GzipEvents(PlainEvents):
    """Events in a gzip stream."""

    encoding = "gzip"

    def __init__(self) -> None:
        self._stream = GzipStream()

    def begin(self, text: bytes) -> bytes:
        """The header, and the first text."""
        return self._stream.start() + self._stream.own(text)

    def encode(self, frame: Frame) -> bytes:
        """The blocks of a frame, which it keeps for all streams. The rank of a member is for one stream only."""
        return self._stream.own(frame.event) if frame.type == "around" else self._stream.shared(frame.shared_event)

    def finish(self, text: bytes) -> bytes:
        """The last text, and the end of the stream."""
        return self._stream.own(text) + self._stream.end()
