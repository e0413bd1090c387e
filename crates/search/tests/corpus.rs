//! The properties of the fuzz target `search` on its corpus and on random bytes.

#[path = "../../../fuzz/src/streams/search.rs"]
mod search;

use proptest::prelude::*;

#[test]
fn corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/search");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        search::check(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{corpus} is empty");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes(
        lines in prop::collection::vec("~?([ab|]|\\\\x6[12]|\\|61 62\\|){1,6}", 1..5),
        chunks in prop::collection::vec(prop::sample::select(b"\x01\x05\x83abAB".to_vec()), 0..100),
    ) {
        search::check(&[lines.join("\n").as_bytes(), &[0], &chunks].concat());
    }
}
