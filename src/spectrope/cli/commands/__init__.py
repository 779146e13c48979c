"""Commands of the library, one per file."""
