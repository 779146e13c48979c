"""Engines that carry out jobs: this machine's processes, or a Ray cluster."""
