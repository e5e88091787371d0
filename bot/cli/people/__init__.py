"""`bot person`: show, mark, export and delete what is stored about a person."""
