"""The node agent: reads one machine's cards and kernel log and reports them to the portal.

It runs on nodes without Django: it imports pynvml and the standard library, and nothing else of this project.
Run it with `python -m scheduler.agent`; `scheduler.agent.observe.collect` gives one report as a dict.
"""
