"""The truth: people, machines, work, the book, telemetry and audit. The bottom room: it imports no other."""
