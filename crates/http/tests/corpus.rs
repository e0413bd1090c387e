//! The properties of the fuzz target `http` on its corpus, on random bytes, and on messages with changes.

#[path = "../../../fuzz/src/http/parser.rs"]
mod http;

use proptest::prelude::*;

#[test]
fn corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/http");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        http::check(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{corpus} is empty");
}

/// Pieces of which messages consist, and pieces that spoil them.
fn piece() -> impl Strategy<Value = &'static [u8]> {
    let pieces: &[&'static [u8]] = &[
        b"GET ",
        b"HEAD ",
        b"CONNECT ",
        b"OPTIONS ",
        b"/",
        b"*",
        b"http://a/b",
        b"a:1",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 304\r\n",
        b"HTTP/1.1 100 \r\n",
        b"HTTP/1.1 101 S\r\n",
        b"Host: a\r\n",
        b"X",
        b": ",
        b"Content-Length: 2\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Upgrade: w\r\n",
        b"\r\n",
        b"\r\n",
        b"2\r\nab\r\n",
        b"0\r\n\r\n",
        b";e",
        b" ",
        b"\t",
        b"\n",
        b"\r",
        b"\0",
        b"\xe9",
        b"\xff",
        b"ab",
    ];
    prop::sample::select(pieces)
}

proptest! {
    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        http::check(&bytes);
    }

    #[test]
    fn random_pieces(cut: u8, pieces in prop::collection::vec(piece(), 0..40)) {
        let mut bytes = vec![cut];
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        http::check(&bytes);
    }

    /// Heads that begin well.
    #[test]
    fn spoiled_heads(cut: u8, method in "[A-Z]{1,7}", pieces in prop::collection::vec(piece(), 0..20)) {
        let mut bytes = vec![cut];
        bytes.extend_from_slice(format!("{method} / HTTP/1.1\r\nHost: a\r\n").as_bytes());
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        http::check(&bytes);
    }
}
