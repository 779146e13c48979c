"""Figures and tables of the paper by their numbers, drawn from the rows of a study or from run folders."""
