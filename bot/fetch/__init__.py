"""Reading URLs that strangers or models supplied, and never anything but the public web."""
