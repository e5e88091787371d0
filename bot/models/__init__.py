"""Which model answers what, at which cost, and who takes over when it cannot."""
