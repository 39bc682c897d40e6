"""The placement engine: pure functions, a snapshot in and a plan out. No Django, no clock, no unseeded random."""
