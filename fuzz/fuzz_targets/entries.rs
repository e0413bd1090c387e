#![no_main]

#[path = "../src/entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::check(bytes));
