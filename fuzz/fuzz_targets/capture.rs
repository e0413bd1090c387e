#![no_main]

#[path = "../src/capture.rs"]
mod capture;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| capture::check(bytes));
