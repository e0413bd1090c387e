//! The properties of the fuzz target `import`, on its corpus and on mutations of it.

use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[path = "../../../fuzz/src/import.rs"]
mod import;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/import");
    let files = std::fs::read_dir(folder).expect("the corpus");
    files.map(|file| std::fs::read(file.expect("a file").path()).expect("readable")).collect()
}

#[test]
fn the_corpus_keeps_the_promises() {
    let files = corpus();
    assert!(files.len() >= 5, "{} files", files.len());
    files.iter().for_each(|file| import::check(file));
}

/// Bytes change, and parts of one seed stand in another.
#[test]
fn mutated_seeds_keep_the_promises() {
    let (files, random) = (corpus(), &mut SmallRng::seed_from_u64(5));
    for _ in 0..400 {
        let mut input = files[random.random_range(0..files.len())].clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..input.len());
            if random.random() {
                input[at] = random.random();
                continue;
            }
            let other = &files[random.random_range(0..files.len())];
            let from = random.random_range(0..other.len());
            let to = random.random_range(from..other.len().min(from + 40));
            input.splice(at..at, other[from..=to].iter().copied());
        }
        import::check(&input);
    }
}
