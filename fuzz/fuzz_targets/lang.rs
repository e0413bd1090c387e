#![no_main]

#[path = "../src/lang.rs"]
mod lang;

libfuzzer_sys::fuzz_target!(|text: &[u8]| lang::check(text));
