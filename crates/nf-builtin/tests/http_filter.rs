//! The properties of `http-filter` on the corpus of the fuzz target `http`, and on requests that may be
//! refused.

#[path = "../../../fuzz/src/http/filter.rs"]
mod http_filter;

use proptest::prelude::*;

#[test]
fn corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/http");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        http_filter::check(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{corpus} is empty");
}

/// Pieces of which requests and responses consist, and pieces that spoil them.
fn piece() -> impl Strategy<Value = &'static [u8]> {
    let pieces: &[&'static [u8]] = &[
        b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a\r\n",
        b"GET /x/..//%62/c?d HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HEAD /b HTTP/1.1\r\nHost: a:80\r\n\r\n",
        b"GET /b HTTP/1.1\r\nHost: ok\r\n\r\n",
        b"GET http://b/c HTTP/1.1\r\nHost: b\r\n\r\n",
        b"PUT /a HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 25\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
        b"X: bad one\r\n",
        b"X: good\r\n",
        b"X : bad\r\n",
        b"Content-Length: 2\r\n",
        b"Upgrade: x\r\n",
        b"\r\n",
        b"\r\n",
        b"2\r\nab\r\n",
        b"0\r\n\r\n",
        b"0\r\nX: bad\r\n\r\n",
        b"ab",
        b"G",
        b"\xffHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\xff",
        b"\xffHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\xff",
        b"\xffHTTP/1.1 100 C\r\n\r\n\xff",
        b"\xffHTTP/1.1 101 S\r\nUpgrade: x\r\n\r\n\xff",
    ];
    prop::sample::select(pieces)
}

proptest! {
    #[test]
    fn requests_that_may_be_refused(cut in 0..40_u8, pieces in prop::collection::vec(piece(), 0..12)) {
        http_filter::check(&[&[cut], &pieces.concat()[..]].concat());
    }
}
