"""The store protocols of `bot.store` in SQL."""
