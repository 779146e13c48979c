"""What claims show beside their parts: a file for each figure."""
