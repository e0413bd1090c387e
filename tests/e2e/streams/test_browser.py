"""A browser loads a page by a chain that replaces a word in all of its parts."""

import gzip
import http.server
import itertools

from lab.netns import SERVER4
from lab.traffic import serving

PORT = 8080
CONFIG = """nf add words http-edit type text/* type application/* body replace evil goodness response header set X-Box mmb
chain add c words
add-stateful tcp-dport 8080 chain c
"""
ROWS = 2000
PAGE = b"""<!doctype html><title>evil title</title><link rel=stylesheet href=/style.css>
<p id=text>an evil text</p><p id=rows></p><p id=styled>styled</p><p id=header></p>
<script src=/script.js></script>"""
SCRIPT = b"""const set = (id, text) => document.getElementById(id).textContent = text;
addEventListener("load", async () => {
  const answers = await Promise.all([1, 2, 3, 4, 5, 6].map((n) => fetch("/rows?" + n)));
  const rows = (await Promise.all(answers.map((answer) => answer.json()))).flat();
  set("rows", rows.length + " " + [...new Set(rows)].join());
  set("header", answers.map((answer) => answer.headers.get("X-Box")).join());
  set("styled", getComputedStyle(document.getElementById("styled"), "::after").content);
  document.body.dataset.done = "yes";
});"""
PARTS = {
    "/": ("text/html", PAGE),
    "/script.js": ("text/javascript", SCRIPT),
    "/style.css": ("text/css", b'#styled::after { content: "evil" }'),
    "/rows": ("application/json", b"[" + b",".join([b'"evil"'] * ROWS) + b"]"),
}


class Site(http.server.BaseHTTPRequestHandler):
    """Parts of the page: with a length, in chunks, and compressed, in turns."""

    protocol_version = "HTTP/1.1"
    turns = itertools.count()

    def do_GET(self):
        kind, body = PARTS.get(self.path.partition("?")[0], ("text/plain", b""))
        turn = next(self.turns) % 4
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if turn >= 2:
            self.send_header("Content-Encoding", "gzip")
            body = gzip.compress(body)
        if turn % 2:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(body), 1000):
                part = body[at : at + 1000]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_chromium_shows_the_edited_page(make_wire, tmp_path):
    wire = make_wire("af-packet", CONFIG)
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path}")
    # The budget is of the page's own time: it ends when nothing is left to load.
    budget = ("--virtual-time-budget=60000", "--dump-dom")
    with serving(wire.server, (SERVER4, PORT), Site):
        shown = wire.client.run("chromium", *options, *budget, f"http://{SERVER4}:{PORT}/", timeout=120).stdout
    assert 'data-done="yes"' in shown
    for text in (
        "<title>goodness title</title>",
        '<p id="text">an goodness text</p>',
        f'<p id="rows">{6 * ROWS} goodness</p>',
        '<p id="styled">"goodness"</p>',
        f'<p id="header">{",".join(["mmb"] * 6)}</p>',
    ):
        assert text in shown
