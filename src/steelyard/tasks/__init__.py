"""Questions and their checkable answers: built-in tasks, and your own rows from files and hubs."""
