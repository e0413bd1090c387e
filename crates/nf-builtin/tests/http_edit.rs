//! The properties of `http-edit` and `http-lb` on the corpus of the fuzz target `http`, and on messages with
//! changes.

#[path = "../../../fuzz/src/http/balance.rs"]
mod http_balance;
#[path = "../../../fuzz/src/http/edits.rs"]
mod http_edit;

use proptest::prelude::*;

#[test]
fn corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/http");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let input = std::fs::read(entry.unwrap().path()).unwrap();
        http_edit::check(&input);
        http_balance::check(&input);
        inputs += 1;
    }
    assert!(inputs > 0, "{corpus} is empty");
}

/// Pieces of which messages consist, and pieces that spoil them.
fn piece() -> impl Strategy<Value = &'static [u8]> {
    let pieces: &[&'static [u8]] = &[
        b"GET /b HTTP/1.1\r\nHost: a\r\n",
        b"HEAD http://a/b HTTP/1.1\r\nHost: a\r\n",
        b"POST / HTTP/1.0\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab",
        b"\xffHTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
        b"\xffHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"\xffHTTP/1.0 200 OK\r\n",
        b"\xffHTTP/1.1 304 N\r\nETag: \"a\"\r\n",
        b"\xffHTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 27\r\n\r\n",
        b"\xffHTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n",
        // The text `abbabca`.
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03KLJJLJN\x04\0\xd1\xf4\xcf\xaa\x07\0\0\0",
        b"9\r\nKLJJLJN\x04\0\r\n0\r\n\r\n",
        b"\xffHTTP/1.1 100 C\r\n\r\n",
        b"X: 1\r\n",
        b"Host-X: ab\r\n",
        b"Y:\r\n",
        b"ETag: \"ab\"\r\n",
        b"Connection: close\r\n",
        b"\r\n",
        b"\r\n",
        b"2\r\nab\r\n",
        b"1;b\r\na\r\n1\r\nb\r\n",
        b"0\r\n\r\n",
        b"0\r\nX: ab\r\n\r\n",
        b"abbab",
        b"ab",
        b"a",
        b" ",
        b"\n",
        b"\xff",
        b"\xff",
    ];
    prop::sample::select(pieces)
}

proptest! {
    #[test]
    fn messages_with_changes(cut in 0..40_u8, pieces in prop::collection::vec(piece(), 0..24)) {
        let input = [&[cut], &pieces.concat()[..]].concat();
        http_edit::check(&input);
        http_balance::check(&input);
    }
}
