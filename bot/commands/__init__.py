"""What people ask the bot itself: commands, and buttons that were pressed."""
