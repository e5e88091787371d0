"""The road of one message, a stage a file; `process_message` is the road itself: read it first."""
