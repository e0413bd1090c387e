#![no_main]

#[path = "../src/packet.rs"]
mod packet;

libfuzzer_sys::fuzz_target!(|frame: &[u8]| packet::check(frame));
