"""Whether a message in a group room is addressed to the agent, found from the state of the talk, without a model."""
