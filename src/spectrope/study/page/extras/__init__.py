"""Additional figures of claims, one file per figure."""
