"""Starting and stopping agents and adapters."""
