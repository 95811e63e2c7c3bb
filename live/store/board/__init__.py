"""One board in the store: the classes that write, read, rotate, and moderate it."""
