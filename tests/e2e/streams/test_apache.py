"""Apache serves pages whose bytes are edited on the way: compressed, in chunks, in ranges, and not modified."""

import os

import pytest

from lab import wait
from lab.netns import SERVER4, end

PORT = 8080
CONFIG = """nf add words http-edit type text/* body replace evil goodness
chain add c words
add-stateful tcp-dport 8080 chain c
"""
MODULES = ["mpm_event", "authz_core", "mime", "filter", "deflate", "env"]
APACHE = """ServerName localhost
PidFile {directory}/pid
ErrorLog {directory}/errors
Listen {address}:{port}
DocumentRoot {directory}/www
TypesConfig /dev/null
AddType text/html .html
AddOutputFilterByType DEFLATE text/html
<Directory {directory}/www>
  Require all granted
</Directory>
<Files forced.html>
  SetEnv force-gzip 1
</Files>
"""
LINE, LINES = b"<p>an evil word in each line</p>\n", 5000
# A page so long that Apache compresses it piece by piece, without a length.
PAGE = LINE * LINES
EDITED = PAGE.replace(b"evil", b"goodness")


@pytest.fixture
def wire(make_wire, tmp_path):
    made = make_wire("af-packet", CONFIG)
    tmp_path.chmod(0o755)
    (tmp_path / "www").mkdir()
    for name in ("page.html", "forced.html"):
        (tmp_path / "www" / name).write_bytes(PAGE)
    loaded = "".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n" for name in MODULES)
    config = tmp_path / "apache.conf"
    config.write_text(loaded + APACHE.format(directory=tmp_path, address=SERVER4, port=PORT), encoding="ascii")
    server = made.server.popen("apache2", "-X", "-f", config)
    wait.until(lambda: made.server.listens(PORT), "Apache to listen")
    yield made
    end(server)


URL = f"http://{SERVER4}:{PORT}/page.html"
CURL = ("curl", "-sS", "--noproxy", "*", "--max-time", "20")


def curl(wire, tmp_path, *options, url=URL):
    """Status and headers in lower case, and the body, of one answer."""
    body = tmp_path / "body"
    head = wire.client.run(*CURL, "-D", "-", "-o", body, *options, url).stdout.lower().split("\n")
    headers = dict(line.strip().split(": ", 1) for line in head if ": " in line)
    return int(head[0].split()[1]), headers, body.read_bytes() if body.exists() else b""


def test_pages_of_apache_are_edited(wire, tmp_path):
    status, _, body = curl(wire, tmp_path)
    assert (status, body) == (200, EDITED)
    # Apache does not compress what is asked for without compression.
    status, headers, body = curl(wire, tmp_path, "--compressed")
    assert (status, body) == (200, EDITED) and "content-encoding" not in headers
    # Here it does, whatever is asked for: the body is decoded and goes on so.
    forced = URL.replace("page", "forced")
    status, headers, body = curl(wire, tmp_path, "--compressed", url=forced)
    assert (status, body) == (200, EDITED) and "content-encoding" not in headers
    # A range of the edited page would begin elsewhere: the whole page comes.
    status, _, body = curl(wire, tmp_path, "-r", "100-299")
    assert (status, body) == (200, EDITED)
    assert curl(wire, tmp_path, "-I")[0] == 200
    # One connection for several pages.
    assert wire.client.run(*CURL, "--compressed", URL, forced, URL).stdout.encode() == EDITED * 3


def test_a_cache_that_has_the_edited_page_may_keep_it(wire, tmp_path):
    _, headers, _ = curl(wire, tmp_path)
    date = headers["last-modified"]
    status, _, body = curl(wire, tmp_path, "-H", f"If-Modified-Since: {date}")
    assert (status, body) in ((304, b""), (200, EDITED))
    (tmp_path / "www" / "page.html").write_bytes(b"evil again")
    os.utime(tmp_path / "www" / "page.html", (2_000_000_000, 2_000_000_000))
    status, _, body = curl(wire, tmp_path, "-H", f"If-Modified-Since: {date}")
    assert (status, body) == (200, b"goodness again")
