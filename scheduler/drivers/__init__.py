"""Drivers make allocations real; see base.py for the protocol."""
