"""The entries of boards on their way into SQL: the lives that they belong to, moving them there, and reading them."""
