"""Decisions and the machinery that makes them real. Imports ledger, never portal."""
