//! Replays the corpus of the fuzz target `session` (see `fuzz/README.md`) without a fuzzer, and random bytes.

#[path = "../../../fuzz/src/session.rs"]
mod session;

use proptest::prelude::*;

#[test]
fn the_corpus_keeps_the_promises() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/session");
    let files: Vec<_> =
        std::fs::read_dir(corpus).expect("a corpus").map(|file| file.expect("a file").path()).collect();
    assert!(files.len() > 10, "{} files in the corpus", files.len());
    for file in files {
        session::check(&std::fs::read(&file).expect("readable"));
    }
}

/// Steps of two bytes, and packets of a few more.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let step = prop_oneof![
        8 => (prop_oneof![Just(3u8), Just(0x83)], any::<[u8; 5]>()).prop_map(|(what, d)| [&[what], &d[..]].concat()),
        2 => (prop_oneof![Just(4u8), Just(0x84)], any::<[u8; 7]>()).prop_map(|(what, d)| [&[what], &d[..]].concat()),
        4 => (prop_oneof![Just(5u8), Just(6)], any::<u8>()).prop_map(|(what, a)| vec![what, a]),
        2 => any::<[u8; 2]>().prop_map(|bytes| bytes.to_vec()),
        1 => any::<u8>().prop_map(|a| vec![0, a]),
    ];
    (any::<[u8; 3]>(), prop::collection::vec(step, 0..60))
        .prop_map(|(config, steps)| [&config[..], &steps.concat()].concat())
}

proptest! {
    #[test]
    fn random_steps_keep_the_promises(bytes in bytes()) {
        session::check(&bytes);
    }
}
