"""Work on what SQL holds: checkpoints, the archive, forgetting old entries, and finding damage."""
