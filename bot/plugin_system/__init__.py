"""What plugins are made of, how they are found and in which order they load."""
