//! The promises of the fuzz target `descriptor`, on its corpus and on random bytes.

use proptest::prelude::*;

#[path = "../../../fuzz/src/descriptor.rs"]
mod descriptor;

#[test]
fn corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/descriptor");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        descriptor::check(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{corpus} is empty");
}

proptest! {
    #[test]
    fn random_steps(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        descriptor::check(&bytes);
    }
}
