"""What the operating system gives a process: memory, open files, and files that are replaced as a whole."""
