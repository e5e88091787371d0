"""Rehearsal: what a character would have answered in a recorded room, and how its replies keep its voice."""
