"""Process-wide concerns: signals, limits, exit codes, the watchdog."""
