"""One folder per platform; each meets the others only through `bot`."""
