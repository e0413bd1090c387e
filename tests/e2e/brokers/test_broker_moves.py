"""Brokers that move between the daemon and processes under load, and what their clients notice: nothing."""

import re

import pytest

from brokers.servers import LOCAL
from lab import wait

URL = f"http://{LOCAL}:8080/file"
ROUNDS = 4


@pytest.mark.parametrize("header", ["Connection: keep-alive", "Connection: close"], ids=["kept", "new"])
def test_a_broker_moves_under_load(site, tmp_path, header):
    """Into a process, to another domain, and back into the daemon: no request fails, on new and on kept connections."""
    site.web(9001, size=1000)
    daemon = site.start()

    def move(place):
        lines = (
            "domain add first private",
            "domain add second private",
            f"nf add lb proxy {LOCAL}:9001{place}",
            "chain add site lb",
            f"broker add web listen {LOCAL}:8080 chain site",
        )
        path = tmp_path / "moved.conf"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        daemon.command("apply", path)

    def requests():
        return site.counters()["requests"]

    move("")
    wrk = site.space.popen("wrk", "-t", 1, "-c", 8, "-d", "1h", "-H", header, URL, stdout=-1, stderr=-1, text=True)
    wait.until(lambda: requests() > 0, "requests")
    for number in range(ROUNDS):
        for place in (" process first", " process second", ""):
            move(place)
            before = requests()
            wait.until(lambda before=before: requests() > before + 50, f"requests in round {number} behind{place or ' the daemon'}")
    wrk.send_signal(2)
    report = wrk.communicate(timeout=wait.PATIENCE)[0]
    assert int(re.search(r"(\d+) requests in", report)[1]) > 50 * 3 * ROUNDS, report
    assert "Non-2xx" not in report and "Socket errors" not in report, report
