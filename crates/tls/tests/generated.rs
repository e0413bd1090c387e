//! The properties of the fuzz target `tls`, on messages with changes.

#[path = "../../../fuzz/src/streams/tls.rs"]
mod tls;

use proptest::prelude::*;

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
        let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        tls::check(&bytes[5..].chunks(size).flat_map(record).collect::<Vec<_>>());
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        tls::check(&bytes);
        tls::check(&[&[22, 3, 1][..], &bytes].concat());
    }
}
