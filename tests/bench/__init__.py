"""Benchmarks: each module has run(**numbers) -> JSON text. They compare inside one run and assert no times."""
