"""Where bots on Discord are born: the chaos tests' nursery, with the library imported beforehand."""

import adapters.discord  # noqa: F401  # it takes a second, and every child would
from tests.chaos.nursery import main

if __name__ == "__main__":
    main()
