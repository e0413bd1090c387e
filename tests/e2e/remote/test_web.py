"""The web page in a real browser (Chromium): signing in, each view, the editor, and text that would be markup.

MMB_SCREENSHOTS=DIR keeps pictures of each view, on a desktop and a phone, light and dark.
"""

import contextlib
import os
import pathlib
import socket
import subprocess

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap, wrpcapng

from lab import wait
from lab.daemon import mmb
from lab.netns import CLIENT4, SERVER4

webdriver = pytest.importorskip("selenium.webdriver", reason="needs python3-selenium and chromium-driver")

PORT = 9080
URL = f"http://127.0.0.1:{PORT}"
VIEWS = ["overview", "graph", "rules", "sessions", "drops", "talkers", "trace"]
# What would run if the page made markup of text.
EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
CONFIG = f"""\
interface add left af-packet m0
interface add right af-packet m1
wire left right
add tcp-dport 23 block name telnet comment "{EVIL}"
add-stateful in left ip-proto {{tcp,udp,icmp}} accept
add in right ip-proto udp drop
"""


class Page:
    """The page of a daemon in a browser."""

    def __init__(self, browser, daemon, tokens, bench):
        self.browser, self.daemon, self.tokens, self.bench = browser, daemon, tokens, bench

    def sign_in(self, token):
        self.browser.get(URL)
        self.find("input[aria-label=Token]").send_keys(token)
        self.find("form.login button").click()

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def find(self, selector):
        return wait.until(lambda: self.all(selector), selector)[0]

    def text(self):
        return self.find("body").text

    def wait_for(self, text):
        wait.until(lambda: text in self.text(), f"`{text}` on the page")

    def show(self, view):
        self.browser.get(f"{URL}/#{view}")
        self.find(f'nav a[href="#{view}"][aria-current=page]')
        self.wait_for("live")

    def problems(self):
        """Errors of the page and violations of its policy that the browser has logged. Refused requests are none."""
        log = self.browser.get_log("browser")
        return [entry for entry in log if entry["level"] in ("WARNING", "SEVERE") and entry["source"] != "network"]


@pytest.fixture
def page(make_bench, make_daemon, tmp_path):
    bench = make_bench()
    users = tmp_path / "users"
    tokens = {role: mmb("token", users, role, role).stdout.strip() for role in ("read", "operate")}
    daemon = make_daemon(bench.mbox, CONFIG, arguments=("--web", f"127.0.0.1:{PORT}", "--api-users", users))
    wait.until(lambda: f"web page on {URL}" in daemon.log(), "the address in the log")
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path / 'browser'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The browser and its driver are in the middlebox's namespace, as this thread is.
    with bench.mbox.entered(), contextlib.ExitStack() as ends:
        browser = webdriver.Chrome(options=options)
        ends.callback(browser.quit)
        yield Page(browser, daemon, tokens, bench)


def fetch(request):
    """The head and the body of the answer to a raw request."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=wait.PATIENCE) as connection:
        connection.sendall(request.replace("\n", "\r\n").encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    head, _, body = answer.decode().partition("\r\n\r\n")
    return head.lower(), body


def test_only_the_page_is_open_and_it_is_confined(page):
    head, body = fetch("GET / HTTP/1.1\nHost: 127.0.0.1\n\n")
    assert head.startswith("http/1.1 200") and "connection: close" in head
    assert "content-security-policy: default-src 'none'; script-src 'self'" in head
    assert "x-content-type-options: nosniff" in head and "frame-ancestors 'none'" in head and "unsafe" not in head
    assert "<script>" not in body and "://" not in body
    for path in ("/v1/version", "/metrics", "/v1/openapi.json", "/index.html", "/../etc/passwd"):
        assert fetch(f"GET {path} HTTP/1.1\nHost: 127.0.0.1\n\n")[0].startswith("http/1.1 401"), path
    assert fetch("POST / HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 0\n\n")[0].startswith("http/1.1 401")
    # A name that leads to this address by an attacker's DNS, and the page of another site.
    assert fetch("GET / HTTP/1.1\nHost: evil.example\n\n")[0].startswith("http/1.1 403")
    assert fetch("GET / HTTP/1.1\nHost: 127.0.0.1\nOrigin: http://evil.example\n\n")[0].startswith("http/1.1 403")


def test_signing_in_and_out(page):
    page.sign_in("mmb_" + "0" * 64)
    page.wait_for("the token is not valid")
    page.sign_in(page.tokens["read"])
    page.wait_for("Interfaces")
    assert "af-packet m0" in page.text()
    # The token stays for this tab.
    page.browser.refresh()
    page.wait_for("Interfaces")
    page.find("#leave").click()
    page.find("input[aria-label=Token]")
    assert page.browser.execute_script("return sessionStorage.length + localStorage.length + document.cookie.length") == 0


def test_text_stays_text(page):
    """A comment on a rule that would be markup is shown as it is, and runs nothing."""
    page.sign_in(page.tokens["operate"])
    page.wait_for("Interfaces")
    page.show("rules")
    page.wait_for(EVIL)
    assert page.all("main img") == [] and page.all("main script") == []
    assert page.browser.execute_script("return window.hacked") is None
    # Even markup that a script would insert is refused by the policy.
    inserted = """
        try { document.querySelector("main").innerHTML = arguments[0]; return "inserted"; } catch (error) { return error.name; }
    """
    assert page.browser.execute_script(inserted, EVIL) == "TypeError"
    assert page.browser.execute_script("return window.hacked") is None


def test_each_view(page):
    page.bench.client.popen("ping", "-q", "-i", "0.05", SERVER4, stdout=subprocess.DEVNULL)
    page.bench.server.run("bash", "-c", f"echo x > /dev/udp/{CLIENT4}/9")
    page.sign_in(page.tokens["read"])
    page.wait_for("Interfaces")
    pictures = pathlib.Path(os.environ["MMB_SCREENSHOTS"]) if "MMB_SCREENSHOTS" in os.environ else None
    expected = {
        "overview": ["Received", "Sessions", "left", "up", "bit/s"],
        "graph": ["l2-input", "flow-lookup", "packets/s"],
        "rules": ["add-stateful in left", "Edit the configuration"],
        "sessions": ["icmp", CLIENT4, SERVER4],
        "drops": ["rule", "dropped"],
        "talkers": [CLIENT4, "Share"],
        "trace": ["Shows the next 20 packets"],
    }
    assert list(expected) == VIEWS
    for width, height, name in ((1280, 800, "desktop"), (390, 844, "phone")):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": name == "phone"}
        page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            for view, texts in expected.items():
                page.show(view)
                for text in texts:
                    page.wait_for(text)
                if view == "graph":
                    page.find(".graph g.busy")
                # Wide tables scroll by themselves, the page does not.
                assert page.browser.execute_script("return document.documentElement.scrollWidth") <= width, (view, name)
                if pictures:
                    page.browser.save_screenshot(str(pictures / f"{view}-{name}-{scheme}.png"))
    background = "return getComputedStyle(document.body).backgroundColor"
    assert page.browser.execute_script(background) == "rgb(18, 22, 28)"
    assert page.problems() == []


def test_the_editor_checks_what_is_typed(page):
    page.sign_in(page.tokens["operate"])
    page.wait_for("Interfaces")
    page.show("rules")
    page.find("main section:last-of-type button").click()
    page.wait_for("No errors: 3 rules, 2 interfaces.")
    area = page.find("textarea")
    assert EVIL in area.get_property("value")
    apply = page.browser.find_element("xpath", "//button[starts-with(., 'Apply')]")
    area.send_keys("add tcp-dport x drop\n")
    page.wait_for("Line 7, column 15")
    assert not apply.is_enabled()
    # The button selects the wrong word.
    page.find(".diagnostics button").click()
    selected = "const t = document.querySelector('textarea'); return t.value.slice(t.selectionStart, t.selectionEnd)"
    assert page.browser.execute_script(selected) == "x"
    area.send_keys("8080")
    page.wait_for("No errors: 4 rules")
    page.browser.find_element("xpath", "//button[. = 'Show the changes']").click()
    page.wait_for("+ add tcp-dport 8080 drop")
    wait.until(apply.is_enabled, "the button")
    apply.click()
    page.wait_for("comes back in")
    assert len(page.daemon.rules()) == 4 and "pending" in page.daemon.json("history")
    assert page.daemon.json("history")["revisions"][0]["name"] == "operate"
    page.find("#pending button").click()
    wait.until(lambda: "pending" not in page.daemon.json("history"), "the confirmation")
    wait.until(lambda: not page.find("#pending").is_displayed(), "the end of the banner")
    assert page.problems() == []


def test_readers_cannot_change_anything(page):
    page.sign_in(page.tokens["read"])
    page.wait_for("Interfaces")
    page.show("rules")
    page.find("main section:last-of-type button").click()
    page.wait_for("the role read does not permit")
    assert not page.browser.find_element("xpath", "//button[starts-with(., 'Apply')]").is_enabled()


def test_packets_are_explained(page):
    page.sign_in(page.tokens["read"])
    page.wait_for("Interfaces")
    page.show("trace")
    page.find("main input").send_keys("ip-proto icmp")
    page.find("main form button").click()
    page.wait_for("Waiting for packets")

    def answered():
        page.bench.client.run("ping", "-c", "1", "-W", "1", SERVER4)
        return "sent to right" in page.text()

    wait.until(answered, "a packet")
    for text in (": add-stateful in left", "session opened", "ip4-input"):
        page.wait_for(text)
    page.find("main form button").click()
    page.wait_for("stopped")
    page.find("main input").send_keys(" nonsense")
    page.find("main form button").click()
    page.wait_for("nonsense")
    assert page.problems() == []


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_a_packet_of_a_capture_is_explained(page, tmp_path, kind):
    address = {"src": CLIENT4, "dst": SERVER4}
    packets = [Ether() / IP(**address) / UDP(dport=53), Ether() / IP(**address) / TCP(dport=23, flags="S")]
    (wrpcap if kind == "pcap" else wrpcapng)(str(tmp_path / "packets"), packets)
    page.sign_in(page.tokens["read"])
    page.wait_for("Interfaces")
    page.show("trace")
    page.find("input[type=file]").send_keys(str(tmp_path / "packets"))
    page.wait_for(f"udp {CLIENT4}:53 > {SERVER4}:53, to right, 42 bytes. No rule decides: the packet goes on.")
    # What `mmb explain` tells: the nodes, the session that it would open, and where it goes.
    for text in ("sent to right", f"session opened: forward, udp unreplied, {CLIENT4}:53 > {SERVER4}:53", "flow-track"):
        page.wait_for(text)
    assert page.daemon.json("show", "connections")["connections"] == [], "a session in service"
    number = page.find("input[type=number]")
    number.clear()
    number.send_keys("2\n")
    page.wait_for("Rule 1 decides.")
    for text in (f"tcp {CLIENT4}:20 > {SERVER4}:23 syn", "✓ tcp-dport 23", "3 add in right ip-proto udp drop does not match"):
        page.wait_for(text)
    if "MMB_SCREENSHOTS" in os.environ:
        page.browser.save_screenshot(os.path.join(os.environ["MMB_SCREENSHOTS"], f"explain-{kind}.png"))
    number.clear()
    number.send_keys("3\n")
    page.wait_for("There is no packet 3.")
    (tmp_path / "text").write_text("no capture, but a text", encoding="utf-8")
    page.find("input[type=file]").send_keys(str(tmp_path / "text"))
    page.wait_for("text is no capture: pcap and pcapng are known")
    assert page.problems() == []


def test_a_daemon_that_is_gone_is_told(page):
    page.sign_in(page.tokens["read"])
    page.wait_for("live")
    page.daemon.stop()
    page.wait_for("no answer from the daemon")
