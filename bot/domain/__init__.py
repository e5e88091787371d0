"""The nouns: plain data that everything else speaks of."""
