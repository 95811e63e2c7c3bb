"""The processes of a server: the one that starts all, and its workers."""
