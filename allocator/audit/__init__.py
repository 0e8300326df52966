"""Everything that somebody decided, read from the tables that hold it: there is no second log."""
