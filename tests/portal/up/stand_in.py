"""`up` with stand-in children in place of Django's: run as `python -m tests.portal.up.stand_in --data D --port N`.

PostgreSQL and Valkey are real. Each stand-in notes in the data folder when it is asked to stop; `drivers` also starts
one "running job" the way the local driver does: forked twice, in a session of its own.
"""

import sys

from portal.up.plan import AGENT, BEAT, WEB, WORKERS, Context, Plan, Step
from portal.up.run import parse, up
from portal.up.supervisor import Service

STARTED = "started.txt"
NOTES = "stopped.txt"
JOB = "job.pid"
FLAKY = "fail-here"

SERVICE = f"""
import os, pathlib, signal, sys, time
name, data = sys.argv[1], pathlib.Path(sys.argv[2])
def stop(*_):
    with open(data / {NOTES!r}, "a") as notes:
        notes.write(name + "\\n")
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
with open(data / {STARTED!r}, "a") as started:
    started.write(name + "\\n")
if name == "drivers" and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(data / {JOB!r}, "a") as job:
            job.write(f"{{os.getpid()}}\\n")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(120)
    os._exit(0)
while not (data / {FLAKY!r}).exists() or name != "books":
    time.sleep(0.02)
sys.exit(7)
"""

WEB_SERVER = """
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""

STEP = """
import os, psycopg
with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS kept (value int PRIMARY KEY)")
open(os.path.join(os.environ["GPU_COMMONS_DATA"], "sign-ins.txt"), "a").write("researcher secret-word\\n")
"""


def table(context: Context) -> Plan:
    """The process table of the tests."""

    def service(name: str, stage: int) -> Service:
        return Service(name, (sys.executable, "-c", SERVICE, name, str(context.data)), stage, env=context.env)

    return Plan(
        steps=(Step("migrate", (sys.executable, "-c", STEP)),),
        web=Service("web", (sys.executable, "-c", WEB_SERVER, str(context.port)), WEB, env=context.env),
        services=(
            service("drivers", WORKERS),
            service("books", WORKERS),
            service("beat", BEAT),
            service("agent", AGENT),
        ),
    )


if __name__ == "__main__":
    sys.exit(up(parse(sys.argv[1:]), table))
