"""The papers' claims: conditions, planned runs, rows, verdicts and the replication page."""
