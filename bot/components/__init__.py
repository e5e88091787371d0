"""What a plugin is made of: one file a kind, each a description joined to an async function."""
