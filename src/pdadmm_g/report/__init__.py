"""Finished or running runs as one HTML page that needs nothing else."""
