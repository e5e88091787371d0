"""The measured claims of the README: `make bench` runs them all."""
