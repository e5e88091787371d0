"""`bot person`: export and delete what is stored about a person."""
