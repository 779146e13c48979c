"""Pairs of checkpoints: whether a draft, an adapter, a merge or a conversion fits its base checkpoint."""
