"""The journal: a copy in SQL of everything that was counted, for rebuilding boards and reading the past.

A function that uses the database raises `JournalError` if the database does not answer or refuses.
"""
