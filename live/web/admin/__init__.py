"""The admin page: an administrator sees and changes boards in a browser."""
