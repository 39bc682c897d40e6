"""Benchmarks: programs that print JSON, run by `manage.py bench NAME`. They assert no times."""
