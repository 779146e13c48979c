"""What a second model can be to the first, one role per file."""
