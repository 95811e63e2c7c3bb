"""The journal: a copy in SQL of everything that was counted, for recovering boards and reading the past.

A function that uses the database raises `JournalError` if the database does not answer or refuses, `JournalBrokenError`
if the data is damaged, and `SetupError` if this version can't read it or if it is missing.
"""
