"""Scenes: conversations in files that say what a character must do, run in a simulated room with recorded answers."""
