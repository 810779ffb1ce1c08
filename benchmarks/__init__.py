"""Scripts that measure: ``python -m benchmarks.NAME --help``. What is published is in results/performance."""
