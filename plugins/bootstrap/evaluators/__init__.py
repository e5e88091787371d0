"""What is learnt after a turn, once the reply has left."""
