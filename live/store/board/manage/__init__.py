"""Create, delete, restore and moderate boards."""
