"""What operators do with a running or stopped bot, and what they ask: one service with pydantic results."""
