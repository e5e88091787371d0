"""`bot doctor`: checks of the set-up, each with what to do."""
