"""Tasks of the decoder, one per file: labelled sequences, an oracle, the best possible accuracy."""
