"""What `bot run` offers the operator of a running agent: the character's file, plugins, settings, checks."""
