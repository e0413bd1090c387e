//! Replays the corpus of the fuzz target `packet` (see `fuzz/README.md`) without a fuzzer.

#[path = "../../../fuzz/src/packet.rs"]
mod packet;

use std::path::Path;

#[test]
fn the_corpus_breaks_no_promise() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/packet");
    let mut seen = 0;
    for file in std::fs::read_dir(corpus).unwrap() {
        packet::check(&std::fs::read(file.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen > 30, "{seen} files in the corpus");
}
