//! The rewriter against the oracle: random edits on random frames give equal bytes and output ports.

#[path = "../../../fuzz/src/rewrite.rs"]
mod rewrite;

use std::path::Path;

use mmb_oracle::generate;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn edits_of_matching_rules(rules in generate::rules(6), frames in generate::frames(12)) {
        for frame in &frames {
            rewrite::agree(&rules, frame);
        }
    }

    #[test]
    fn edits_without_conditions(rules in generate::rules(3), frames in generate::frames(12)) {
        let rules = rewrite::unconditional(rules);
        for frame in &frames {
            rewrite::agree(&rules, frame);
        }
    }

    #[test]
    fn checksums_that_come_to_zero(rules in generate::rules(3), frames in generate::frames(12)) {
        let rules = rewrite::unconditional(rules);
        for frame in frames.iter().filter_map(|frame| rewrite::coming_to_zero(&rules, frame)) {
            rewrite::agree(&rules, &frame);
        }
    }

    #[test]
    fn any_metadata(rules in generate::rules(3), bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        rewrite::any_metadata(&rules, &bytes);
    }
}

/// Runs the corpus of the fuzz target `rewrite` (see `fuzz/README.md`) without a fuzzer.
#[test]
fn corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rewrite");
    let mut seen = 0;
    for file in std::fs::read_dir(corpus).unwrap() {
        rewrite::check(&std::fs::read(file.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen > 20, "{seen} files in the corpus");
}
