"""Actions, one file for each group; `permissions` decides who may run them."""
