"""Services of the operating system for a process: memory, open files, and files that are replaced as a whole."""
