#![no_main]

#[path = "../../src/streams/stream.rs"]
mod stream;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stream::check(bytes));
