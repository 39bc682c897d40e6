"""The node agent: reads one machine's cards and kernel log, reports them to the portal, and tests or resets a card when
the portal asks for it.

It runs on nodes without Django: it imports pynvml and the standard library, and nothing else of this project.
Run it with `python -m scheduler.agent`; `scheduler.agent.observe.collect` gives one report as a dict.
"""
