"""The one-command runner: embedded PostgreSQL and Valkey, migrations, web, workers, beat and the local agent.

`bootstrap` runs before anything is installed and uses the standard library alone; so must `portal/__init__.py`.
Nothing here knows about jobs or the book.
"""
