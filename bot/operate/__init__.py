"""What operators do with a bot, running or stopped, and what they ask; its results are those of HTTP and `--json`."""
