"""The contract that a platform adapter implements."""
