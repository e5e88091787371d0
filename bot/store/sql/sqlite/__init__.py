"""SQLite: reader and writer threads, file lock, backup, integrity check."""
