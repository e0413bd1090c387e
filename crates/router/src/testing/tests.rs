use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[path = "../../../../fuzz/src/netlink.rs"]
mod netlink;

/// The corpus of the fuzz target `netlink`, and mutations of it.
#[test]
fn any_messages_leave_a_model_that_holds_together() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/netlink");
    let files = std::fs::read_dir(folder).unwrap();
    let files: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(files.len() >= 2, "{} files", files.len());
    files.iter().for_each(|file| netlink::check(file));
    let random = &mut SmallRng::seed_from_u64(3);
    for _ in 0..400 {
        let mut input = files[random.random_range(0..files.len())].clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..input.len());
            input[at] = random.random();
        }
        netlink::check(&input);
    }
}
