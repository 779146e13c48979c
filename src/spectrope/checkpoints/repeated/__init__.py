"""Language models trained here on repeated random tokens, and what groups of their heads need."""
