"""The store that keeps everything in this process: complete, and gone when it ends."""

from bot.store.inmemory.store import InMemoryStore

__all__ = ["InMemoryStore"]
