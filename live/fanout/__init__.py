"""From a change notice to every viewer."""
