//! The properties of the fuzz targets `tls` and `quic`, on messages with changes.

#[path = "../../../fuzz/src/streams/quic.rs"]
mod quic;
#[path = "../../../fuzz/src/streams/tls.rs"]
mod tls;

use proptest::prelude::*;

#[test]
fn the_corpus_of_quic() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/quic");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        quic::check(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{corpus} is empty");
}

const DATAGRAM: &[u8] = include_bytes!("../src/quic/rfc9001.bin");
const HELLO: &[u8] = include_bytes!("../src/parse/openssl13.bin");

proptest! {
    #[test]
    fn messages_with_changes(
        changes in prop::collection::vec((0..HELLO.len(), any::<u8>()), 0..4),
        cut in 0..=HELLO.len(),
        size in 1..300_usize,
    ) {
        let mut bytes = HELLO.to_vec();
        changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        tls::check(&bytes);
        tls::check(&bytes[..cut]);
        // Records in front of a second one.
        tls::check(&[&[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 2, 22, 3][..], &bytes].concat());
        let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        tls::check(&bytes[5..].chunks(size).flat_map(record).collect::<Vec<_>>());
    }

    #[test]
    fn datagrams_with_changes(
        changes in prop::collection::vec((0..60_usize, any::<u8>()), 0..4),
        cut in 0..=DATAGRAM.len(),
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = DATAGRAM.to_vec();
        changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        quic::check(&bytes[..cut]);
        quic::check(&[&bytes[..], &behind].concat());
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        tls::check(&bytes);
        quic::check(&bytes);
        tls::check(&[&[22, 3, 1][..], &bytes].concat());
    }
}
