"""Fuzz targets, their seeds, and the program that runs them."""
