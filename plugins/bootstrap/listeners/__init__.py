"""Event listeners: embed memories later, and log runs.

The core stores messages, edits and membership before it emits events; listeners need not store them.
"""
