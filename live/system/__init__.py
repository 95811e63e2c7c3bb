"""Services of the operating system for a process: memory, open files, and files that are replaced as a whole.

`SetupError` says what an operator has to change. `OSError` is the system's own refusal.
"""
