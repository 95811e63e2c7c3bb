"""One board in the store: the classes that write, read, rotate, moderate and audit it."""
