"""What commands share: options, tables, progress bars."""
