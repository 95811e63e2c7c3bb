"""The routes for programs: they read boards, records and their past, and change boards and API keys."""
