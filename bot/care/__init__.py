"""Care for people in distress: how their messages are recognised, and what text refers them to help."""
