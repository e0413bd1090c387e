#![no_main]

#[path = "../src/saved.rs"]
mod saved;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| saved::check(bytes));
