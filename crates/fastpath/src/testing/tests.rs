use proptest::prelude::*;

#[path = "../../../../fuzz/src/entries.rs"]
mod entries;

proptest! {
    /// The fuzz target `entries` on random bytes.
    #[test]
    fn entries_end_whatever_the_kernel_counts(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        entries::check(&bytes);
    }
}
