"""Commands that open checkpoints, one per file."""
