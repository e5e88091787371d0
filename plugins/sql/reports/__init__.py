"""Sums over many rows, for operators."""
