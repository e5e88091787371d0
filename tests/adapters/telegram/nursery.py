"""Where bots on Telegram are born: the chaos tests' nursery, with the client library imported before."""

import adapters.telegram  # noqa: F401  # it takes a second, and every child would
from tests.chaos.nursery import main

if __name__ == "__main__":
    main()
