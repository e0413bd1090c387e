//! Replays the corpora of the fuzz targets `session` and `saved` (see `fuzz/README.md`) without a fuzzer, and
//! random bytes.

#[path = "../../../fuzz/src/saved.rs"]
mod saved;
#[path = "../../../fuzz/src/session.rs"]
mod session;

use proptest::prelude::*;

/// Runs `check` on the files of a corpus, at least `least`.
fn replay(target: &str, least: usize, check: fn(&[u8])) {
    let corpus = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let files: Vec<_> =
        std::fs::read_dir(corpus).expect("a corpus").map(|file| file.expect("a file").path()).collect();
    assert!(files.len() >= least, "{} files in the corpus", files.len());
    for file in files {
        check(&std::fs::read(&file).expect("readable"));
    }
}

#[test]
fn the_corpora_keep_the_promises() {
    replay("session", 10, session::check);
    replay("saved", 3, saved::check);
}

/// A file behind its head, with changed bytes: most of a file is sessions, of any contents.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let seeds = ["translated", "pool", "plain"].map(|name| {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/saved");
        std::fs::read(format!("{corpus}/{name}")).expect("a seed")
    });
    (prop::sample::select(seeds.to_vec()), prop::collection::vec(change, 0..6)).prop_map(
        |(mut bytes, changes)| {
            changes.iter().for_each(|(at, value)| *at.get_mut(&mut bytes) = *value);
            bytes
        },
    )
}

proptest! {
    #[test]
    fn changed_files_keep_the_promises(bytes in file()) {
        saved::check(&bytes);
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
