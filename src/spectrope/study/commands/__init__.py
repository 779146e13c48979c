"""Commands of the study, one per file."""
