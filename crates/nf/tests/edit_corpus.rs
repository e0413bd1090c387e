//! The properties of the fuzz target `edit` on its corpus and on random bytes.

#[path = "../../../fuzz/src/streams/edit.rs"]
mod edit;

use proptest::prelude::*;

#[test]
fn corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/edit");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        edit::check(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{corpus} is empty");
}

proptest! {
    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        edit::check(&bytes);
    }
}
