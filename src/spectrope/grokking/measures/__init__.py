"""Progress measures, one per file."""
