"""The journal: moved to SQL exactly once, folded, kept and rebuilt."""
