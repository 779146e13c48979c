"""Commands of conformance."""
