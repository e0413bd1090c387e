#![no_main]

#[path = "../src/descriptor.rs"]
mod descriptor;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| descriptor::check(bytes));
