"""Other people's models: loading, audit, comparison, ablation and spectra."""
