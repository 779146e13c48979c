"""Training of the decoder: configurations, scales, conditions, the loop, probes on the way."""
