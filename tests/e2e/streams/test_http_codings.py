"""HTTP functions and pages that nginx sends compressed, or with other codings."""

import gzip

import pytest

from lab.daemon import report
from lab.netns import SERVER4, SERVER6
from lab.traffic import WebServer, brotli, curl, fetch, url, zstd
from lab.wire import chain

PORT = 8000


class GzipServer(WebServer):
    """nginx that compresses what it serves to clients that accept it, and files `NAME.gz` for all clients."""

    GZIP = "gzip on; gzip_types text/plain; gzip_min_length 1; gzip_static always; server {{"
    CONFIG = WebServer.CONFIG.replace("server {{", GZIP)


def test_edits_of_what_nginx_serves(make_wire):
    edit = "http-edit response header set Server mmb body remove e type text/plain"
    wire = make_wire("af-packet", chain(edit))
    web = GzipServer(wire.server, PORT)
    try:
        shown = curl(wire.client, "--compressed", "-D", "-", "-o", "/dev/null", url("/file")).stdout
        assert "Server: mmb" in shown and "Transfer-Encoding: chunked" in shown and 'ETag: W/"' in shown
        assert fetch(wire.client, url("/file")) == web.content.replace(b"e", b"")
        # The whole comes in the place of a part, so that it is edited.
        part = curl(wire.client, "-r", "0-99", "-o", "/dev/null", "-w", "%{http_code} %{size_download}", url("/file"))
        assert part.stdout == f"200 {len(web.content.replace(b'e', b''))}"
        assert curl(wire.client, "-0", "-o", "/dev/null", "-w", "%{size_download}", url("/file")).stdout == str(
            len(web.content.replace(b"e", b""))
        )
    finally:
        web.close()


@pytest.mark.parametrize("driver, address", [("af-xdp", SERVER4), ("af-packet", SERVER6)])
def test_compressed_pages_are_edited(make_wire, tmp_path, driver, address):
    """nginx has compressed files, and sends them whatever the client accepts."""
    wire = make_wire(driver, chain("http-edit ranges pass body replace evil good-natured body remove <hr>"))
    web = GzipServer(wire.server, PORT)
    page = "".join(f"<p>{n}: an evil text, number {n * n}<hr>\n" for n in range(20_000)).encode()
    new = page.replace(b"evil", b"good-natured").replace(b"<hr>", b"")
    web.put("page.html.gz", gzip.compress(page[:4999]) + gzip.compress(page[4999:]))
    web.put("plain.html", page)
    web.put("cut.html.gz", gzip.compress(page)[:-1000])
    body, heads = tmp_path / "body", tmp_path / "heads"
    try:
        for options in ((), ("--compressed",), ("--http1.0",)):
            curl(wire.client, *options, "-D", heads, "-o", body, url("/page.html", address))
            assert body.read_bytes() == new, options
            assert "Content-Encoding" not in heads.read_text(encoding="ascii")
        shown = curl(wire.client, "-I", url("/page.html", address)).stdout
        assert shown.startswith("HTTP/1.1 200") and "Content-Encoding" not in shown and "Content-Length" not in shown
        # 56: the connection was reset. The client does not take what it has for the page.
        cut = curl(wire.client, "-o", body, url("/cut.html", address), check=False)
        assert cut.returncode == 56 and new.startswith(body.read_bytes())
        part = curl(wire.client, "-r", "0-99", "-D", "-", "-o", body, url("/plain.html", address)).stdout
        assert part.startswith("HTTP/1.1 206") and "Content-Length: 100" in part and body.read_bytes() == page[:100]
    finally:
        web.close()
    counted = report(wire.daemon)
    assert counted["bodies decoded"] == "4" and counted["bodies not edited: partial content"] == "1"
    assert counted["connections reset: the encoded data of a body has no end"] == "1"


def test_words_are_found_in_compressed_pages(make_wire):
    wire = make_wire("af-packet", chain('match "an evil word" reset http-body reverse'))
    web = GzipServer(wire.server, PORT)
    page = "".join(f"<p>{n}: a good word</p>" for n in range(5_000)).encode()
    web.put("good.html.gz", gzip.compress(page))
    web.put("evil.html.gz", gzip.compress(page + b"an evil word"))
    try:
        assert curl(wire.client, "--compressed", url("/good.html")).stdout == page.decode()
        # 56: the connection was reset.
        assert curl(wire.client, "--compressed", "-o", "/dev/null", url("/evil.html"), check=False).returncode == 56
    finally:
        web.close()
    counted = report(wire.daemon)
    assert [counted[name] for name in ("bodies", "bodies decoded", "matches", "reset sessions")] == ["2", "2", "1", "1"]


class CodedServer(WebServer):
    """nginx with files that have the codings br and zstd."""

    FILES = (
        r"location ~ [.](br|zstd)$ {{ types {{ }} default_type text/html; add_header Content-Encoding $1; }} "
        "root {directory}/www;"
    )
    CONFIG = WebServer.CONFIG.replace("root {directory}/www;", FILES)


@pytest.mark.parametrize("coding, encode", [("br", brotli), ("zstd", zstd)])
def test_pages_with_other_codings_are_edited(make_wire, tmp_path, coding, encode):
    wire = make_wire("af-packet", chain("http-edit body replace evil good-natured"))
    web = CodedServer(wire.server, PORT)
    page = "".join(f"<p>{n}: an evil text, number {n * n}<hr>\n" for n in range(20_000)).encode()
    new = page.replace(b"evil", b"good-natured")
    web.put(f"page.{coding}", encode(page))
    web.put(f"cut.{coding}", encode(page)[:-1000])
    body, heads = tmp_path / "body", tmp_path / "heads"
    try:
        for options in ((), ("--compressed",), ("--http1.0",)):
            curl(wire.client, *options, "-D", heads, "-o", body, url(f"/page.{coding}"))
            assert body.read_bytes() == new, options
            assert "Content-Encoding" not in heads.read_text(encoding="ascii")
        # 56: the connection was reset.
        cut = curl(wire.client, "-o", body, url(f"/cut.{coding}"), check=False)
        assert cut.returncode == 56 and new.startswith(body.read_bytes())
    finally:
        web.close()
    counted = report(wire.daemon)
    assert counted["bodies decoded"] == "4"
    assert counted["connections reset: the encoded data of a body has no end"] == "1"


@pytest.mark.parametrize("coding, encode", [("br", brotli), ("zstd", zstd)])
def test_words_are_found_in_pages_with_other_codings(make_wire, coding, encode):
    """What goes on is not changed: curl decodes it."""
    wire = make_wire("af-packet", chain('match "an evil word" reset http-body reverse'))
    web = CodedServer(wire.server, PORT)
    page = "".join(f"<p>{n}: a good word</p>" for n in range(5_000)).encode()
    web.put(f"good.{coding}", encode(page))
    web.put(f"evil.{coding}", encode(page + b"an evil word"))
    try:
        assert curl(wire.client, "--compressed", url(f"/good.{coding}")).stdout == page.decode()
        evil = curl(wire.client, "--compressed", "-o", "/dev/null", url(f"/evil.{coding}"), check=False)
        assert evil.returncode == 56
    finally:
        web.close()
    counted = report(wire.daemon)
    assert [counted[name] for name in ("bodies", "bodies decoded", "matches", "reset sessions")] == ["2", "2", "1", "1"]
