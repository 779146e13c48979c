"""Probes: capture inputs and logits of attention layers, and compute quantities from them."""
