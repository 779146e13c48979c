"""What everything uses: errors, registries, configurations, random streams, devices, progress."""
