#![no_main]

#[path = "../src/import.rs"]
mod import;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| import::check(bytes));
