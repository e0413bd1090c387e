#![no_main]

#[path = "../../src/streams/search.rs"]
mod search;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| search::check(bytes));
