"""A drill on a virtual card of this machine, begun on the page in Chromium: held, avoided, told to a real Alertmanager and
a webhook, really tested by the node's own agent, back, and its verdict with times. Nothing stands in for anything."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from portal.management.commands import screenshots
from tests.process.portal_run import Portal, free_port

pytestmark = pytest.mark.timeout(500)
ALERTMANAGER = "prometheus-alertmanager"
CONFIG = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"
BROWSER = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
SAID = {"hold", "avoid", "alert", "test", "return"}


class Told(Portal):
    """With channels for its alerts."""

    channels: dict[str, str]

    def environment(self) -> dict[str, str]:
        return super().environment() | self.channels

    def password(self, name: str) -> str:
        lines = (self.data / "sign-ins.txt").read_text().splitlines()
        return next(line.split()[1] for line in lines if line.split()[0] == name)


@contextmanager
def hook() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A webhook on loopback: its port, and what came."""
    came: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            """Nothing: the test says what is wrong."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], came
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def alertmanager(folder: Path) -> Iterator[int]:
    """Debian's own on loopback; its port."""
    folder.mkdir()
    (folder / "am.yml").write_text(CONFIG)
    port = free_port()
    command = [ALERTMANAGER, f"--config.file={folder}/am.yml", f"--storage.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Told, int, list[dict[str, Any]]]]:
    """The portal, the port of its Alertmanager and what its webhook got."""
    if shutil.which(ALERTMANAGER) is None:
        pytest.skip(f"no {ALERTMANAGER} on this machine: apt-get install {ALERTMANAGER}")
    if screenshots.chromium() is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    home = Path(tempfile.mkdtemp(prefix="gpu-commons-drill-"))
    home.chmod(0o711)
    portal = Told(home / "data")
    with hook() as (hook_port, came), alertmanager(home / "alertmanager") as port:
        portal.channels = {
            "ALERTMANAGER_URL": f"http://127.0.0.1:{port}",
            "ALERT_WEBHOOK_URL": f"http://127.0.0.1:{hook_port}/alerts",
            "ALERT_WEBHOOK_SECRET": "drill " * 6,
            "OUTBOUND_ALLOW": f"127.0.0.1:{port},127.0.0.1:{hook_port}",
        }
        try:
            portal.start("--no-fleet")
            yield portal, port, came
        finally:
            portal.stop()
            shutil.rmtree(home, ignore_errors=True)


def virtual_card(portal: Told) -> str:
    def there() -> list[dict[str, Any]]:
        status, body = portal.get("/api/v1/cards/?simulated=false")
        return [card for card in body["results"] if card["virtual"] and card["node"]] if status == 200 else []

    portal.until(there, 60, "the agent has told of its cards")
    return str(there()[0]["uuid"])


def sign_in(page: Any, portal: Told) -> None:
    page.goto(f"http://127.0.0.1:{portal.port}/sign-in/")
    page.fill("#id_username", "operator")
    page.fill("#id_password", portal.password("operator"))
    page.press("#id_password", "Enter")
    page.wait_for_selector("#user-menu")


def known_to(port: int, hold: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/alerts?active=true", timeout=10) as answer:
        return [alert for alert in json.load(answer) if alert["labels"].get("hold") == hold]


def test_a_drill_on_a_virtual_card_from_the_page_to_the_verdict(
    world: tuple[Told, int, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    from playwright.sync_api import sync_playwright

    portal, port, came = world
    card = virtual_card(portal)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=screenshots.chromium(), args=BROWSER)
        page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
        sign_in(page, portal)
        page.goto(f"http://127.0.0.1:{portal.port}/health/drills/")
        page.fill("#id_place", card)
        page.click("form.card-body button[type=submit]")
        page.fill("#id_reason", "monthly drill")
        page.click("text=Begin the drill")
        page.wait_for_selector("#drill")
        number = int(page.url.rstrip("/").rpartition("/")[2])
        page.wait_for_selector("text=being tested and returned", timeout=90_000)
        hold = _drill(portal, number)["hold"]
        seen = known_to(port, str(hold))
        assert [alert["labels"]["card"] for alert in seen] == [card]
        assert portal.submit(command=["true"]) > 0  # a pool with one card out goes on
        page.wait_for_selector("#h-state + .state-big >> text=passed", timeout=180_000)
        shown = page.inner_text("#drill")
        chromium.close()
    drill = _drill(portal, number)
    assert (drill["verdict"], {line["said"] for line in drill["lines"]}) == ("passed", {"held"}), drill
    assert {line["what"] for line in drill["lines"]} == SAID
    assert {line["channel"] for line in drill["lines"] if line["what"] == "alert"} >= {"alertmanager", "webhook"}
    assert any(str(hold) in json.dumps(document) for document in came)
    assert "Back in the pool" in shown
    _tested_for_real(portal, drill)
    portal.until(lambda: not known_to(port, str(hold)), 60, "the alert is over at the Alertmanager")
    with capsys.disabled():
        print("\ndrill:", {f"{x['what']} {x['channel']}".strip(): x["took_s"] for x in drill["lines"]})


def _drill(portal: Told, number: int) -> dict[str, Any]:
    token = portal.token
    try:
        portal.token = portal.manage("token", "operator").stdout.strip()
        status, body = portal.get(f"/api/v1/health/drills/{number}/")
        assert status == 200, body
        if body["case"]:
            body["orders"] = portal.get(f"/api/v1/health/cases/{body['case']}/")[1]["orders"]
    finally:
        portal.token = token
    found: dict[str, Any] = body
    return found


def _tested_for_real(portal: Told, drill: dict[str, Any]) -> None:
    """By a program of the agent that took its time; and nothing holds the card any more."""
    order = next(one for one in drill["orders"] if one["kind"] == "burn_in")
    assert order["ok"], order
    assert order["seconds"] > 1, order
    assert "simulated" not in order["detail"]
    holds = portal.get("/api/v1/holds/")[1]["results"]
    assert holds == [], holds
