"""The stages from a stored message to its outcome, one per file; read `process_message` first."""
