"""The entries of boards reach SQL exactly once, in order, whatever fails on the way."""
