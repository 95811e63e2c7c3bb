"""The fold repeats what the scripts of the store did."""
