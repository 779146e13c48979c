"""Monitoring during training: what attention does with position, and whether the encoding changes."""
