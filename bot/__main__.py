"""`python -m bot`: the same as the command `bot`."""

from bot.cli.main import entry

if __name__ == "__main__":
    raise SystemExit(entry())
