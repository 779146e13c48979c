"""Measure implementations of rotary embeddings in public libraries, each in an environment of its own."""
