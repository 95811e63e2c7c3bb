"""The journal: everything that was counted, in SQL, from which boards can be rebuilt and the past can be read.

A function that uses the database raises `JournalError` if the database does not answer.
"""
