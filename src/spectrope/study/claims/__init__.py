"""Claims of the papers, one per file."""
