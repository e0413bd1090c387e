#![no_main]

#[path = "../src/edit.rs"]
mod edit;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| edit::check(bytes));
