"""Names of a board's keys: all share the hash tag `{board}`, so a board lives on one Cluster slot."""


class Keys:
    """The keys and the channel of one board; its id is checked before it comes here."""

    def __init__(self, prefix: str, board: str) -> None:
        self._base = f"{prefix}:{{{board}}}"
        self.channel = self._base
        self.ranking = f"{self._base}:ranking"
        self.meta = f"{self._base}:meta"
        self.slots = f"{self._base}:slots"
        self.writers = f"{self._base}:writers"

    def slot(self, start: int | str) -> str:
        """The hash of the slot that begins at `start`, in seconds since 1970."""
        return f"{self._base}:slot:{start}"

    def seen(self, start: int) -> str:
        """The set of the identities that were counted in the bucket that begins at `start`."""
        return f"{self._base}:seen:{start}"

    @property
    def slot_pattern(self) -> str:
        """A glob that matches every slot of this board and nothing else."""
        return self.slot("*")
