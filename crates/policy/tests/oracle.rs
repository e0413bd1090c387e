//! Policy against oracle.

use mmb_oracle::generate;
use proptest::collection::vec;
use proptest::prelude::*;

#[path = "../../../fuzz/src/policy.rs"]
mod policy;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn agrees_with_the_oracle(
        rules in generate::rules(40),
        choices in vec(any::<u8>(), 40),
        frames in generate::frames(30),
    ) {
        policy::history(&rules, &choices, &frames.iter().map(|frame| &**frame).collect::<Vec<_>>());
    }
}

#[test]
fn agrees_on_the_corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/policy");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        policy::check(&std::fs::read(&file).unwrap());
    }
}
