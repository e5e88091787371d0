"""Code for both databases: schema, statements, caches, upgrade."""
