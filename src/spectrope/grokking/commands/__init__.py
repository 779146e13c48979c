"""Commands of the grokking laboratory, one per file."""
