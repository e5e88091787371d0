"""Tasks, deadlines and isolation of plugin code; knows nothing about chat."""
