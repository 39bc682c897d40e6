"""The one-command runner: embedded PostgreSQL and Valkey, migrations, web, workers, beat and the local agent.

`bootstrap` runs before anything is installed: it uses the standard library alone and is loaded as a file.
Nothing here knows about jobs or the book.
"""
