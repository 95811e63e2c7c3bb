"""Run-time boards: they are created, changed and deleted while the server runs."""
