#![no_main]

#[path = "../src/options.rs"]
mod options;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| options::check(bytes));
