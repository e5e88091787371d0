"""Process-wide concerns: signals, limits, exit codes, crash loops, the watchdog."""
