"""The plugins that come with Greenroom; each meets the others only through `bot`."""
