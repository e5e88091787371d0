"""What keeps a bot from working as it should: found in one place, shown by the web app, told to the owner."""
