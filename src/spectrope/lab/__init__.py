"""The instrument on models that are trained here: training, ablation, probes, engines."""
