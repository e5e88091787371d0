"""What the character can do, one file a family; who may do what is decided in `authority`."""
