"""Position rules, one per file: functions that assign positions to the tokens of a batch."""
