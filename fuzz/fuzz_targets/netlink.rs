#![no_main]

#[path = "../src/netlink.rs"]
mod netlink;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netlink::check(bytes));
