"""Creates, deletes, restores and moderates boards."""
