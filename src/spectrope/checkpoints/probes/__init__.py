"""Probes of the attention layers of a checkpoint: constant content, constant tokens, real text."""
