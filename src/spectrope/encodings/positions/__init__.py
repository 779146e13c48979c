"""Position rules: where the tokens of a batch are, one per file."""
