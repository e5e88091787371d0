"""`bot init`: the guided set-up, and the same without questions."""
