"""The commands of `live`. A `SetupError` ends a command with its message."""
