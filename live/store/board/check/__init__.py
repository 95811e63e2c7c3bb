"""Compares a board with its journal, audits it, and measures its memory."""
