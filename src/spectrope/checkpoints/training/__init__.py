"""While a model trains: what its attention does with position, and whether its encoding moves."""
