#![no_main]

#[path = "../../src/streams/tls.rs"]
mod tls;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tls::check(bytes));
