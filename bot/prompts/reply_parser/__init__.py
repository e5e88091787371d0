"""Parses what a model wrote: tags, JSON or plain text."""
