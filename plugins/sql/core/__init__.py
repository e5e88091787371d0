"""What both databases share: schema, statements, caches, upgrade."""
