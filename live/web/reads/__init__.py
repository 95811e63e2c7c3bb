"""What clients read: boards, records, their past, and streams of changes."""
