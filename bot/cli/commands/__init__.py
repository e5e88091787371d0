"""The commands of `bot`, one module each."""
