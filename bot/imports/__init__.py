"""History from other programs: what their databases and folders contain, stored without being answered or sent."""
