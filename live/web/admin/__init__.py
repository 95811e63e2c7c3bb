"""The admin page: what an administrator sees and does in a browser."""
