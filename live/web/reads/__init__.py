"""The routes that clients read: boards, records, their past, and streams of changes."""
