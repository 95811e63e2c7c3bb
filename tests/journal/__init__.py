"""The journal: it is moved to SQL exactly once, folded, retained and used to recover boards."""
