#![no_main]

#[path = "../src/rewrite.rs"]
mod rewrite;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rewrite::check(bytes));
