//! The properties of the fuzz target `capture`, on its corpus and on mutations of it.

use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[path = "../../../fuzz/src/capture.rs"]
mod capture;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/capture");
    let files = std::fs::read_dir(folder).expect("the corpus");
    files.map(|file| std::fs::read(file.expect("a file").path()).expect("readable")).collect()
}

#[test]
fn captures_that_are_damaged_are_read_up_to_the_damage() {
    let (files, random) = (corpus(), &mut SmallRng::seed_from_u64(8));
    assert!(files.len() >= 4, "{} files", files.len());
    files.iter().for_each(|file| capture::check(file));
    for _ in 0..300 {
        let mut input = files[random.random_range(0..files.len())].clone();
        for _ in 0..random.random_range(1..5) {
            let at = random.random_range(0..input.len());
            input[at] = random.random();
        }
        capture::check(&input);
    }
}
