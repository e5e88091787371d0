"""Ports for programs that a test starts by number."""

import itertools
import os
import socket

FIRST, COUNT = 10_000, 20_000  # below the ports that Linux gives to connections (32768 and more)
_tried = itertools.count(os.getpid() * 61)  # so that tests at work at once begin at different numbers


def free_port() -> int:
    """Return a port of the loopback on which nothing listens, and that no outgoing connection takes meanwhile."""
    for number in _tried:
        port = FIRST + number % COUNT
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")
