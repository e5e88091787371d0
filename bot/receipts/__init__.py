"""What is told about a message's receipt: the sentence, the checks, the steps."""
