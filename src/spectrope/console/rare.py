"""The mark of an option that help leaves out unless all are asked for."""

RARE = "rare"
