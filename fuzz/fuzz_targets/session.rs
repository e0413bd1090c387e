#![no_main]

#[path = "../src/session.rs"]
mod session;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| session::check(bytes));
