"""What a model wrote, read whatever shape it has: tags, JSON or plain prose."""
