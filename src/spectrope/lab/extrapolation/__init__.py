"""Trained models on sequences longer than those of training, as they are and with positions scaled."""
