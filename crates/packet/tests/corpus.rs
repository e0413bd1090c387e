//! Replays the corpora of the fuzz targets `packet` and `options` (see `fuzz/README.md`) without a fuzzer.

#[path = "../../../fuzz/src/packet.rs"]
mod packet;

use std::fs::DirEntry;
use std::path::Path;

/// Passes every file of the corpus to `check` and returns the number of files.
fn replay(target: &str, check: fn(&[u8])) -> usize {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(corpus).expect("a corpus");
    let read =
        |file: std::io::Result<DirEntry>| std::fs::read(file.expect("a file").path()).expect("readable");
    files.map(|file| check(&read(file))).count()
}

#[test]
fn frames_keep_the_invariants() {
    let seen = replay("packet", packet::check);
    assert!(seen > 30, "{seen} files in the corpus");
}

#[test]
fn options_keep_the_invariants() {
    let seen = replay("options", packet::options::check);
    assert!(seen > 30, "{seen} files in the corpus");
}
