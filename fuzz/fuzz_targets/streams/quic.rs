#![no_main]

#[path = "../../src/streams/quic.rs"]
mod quic;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quic::check(bytes));
