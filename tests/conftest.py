"""Fixtures that every test folder shares. The cast of people and machines is in tests/factories.py."""
