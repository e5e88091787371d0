"""The commands of `bot`, one module each, imported when the command is run."""
