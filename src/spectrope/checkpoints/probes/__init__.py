"""What the attention layers of a checkpoint receive: constant content, constant tokens, real text."""
