"""Work that no message starts: scheduled tasks and posts."""
