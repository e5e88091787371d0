"""Search of what was said in a conversation: by words, related words, speakers, times and neighbouring lines."""
