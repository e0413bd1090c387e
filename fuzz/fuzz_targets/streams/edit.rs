#![no_main]

#[path = "../../src/streams/edit.rs"]
mod edit;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| edit::check(bytes));
