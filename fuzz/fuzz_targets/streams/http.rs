#![no_main]

#[path = "../../src/http/balance.rs"]
mod balance;
#[path = "../../src/http/edits.rs"]
mod edits;
#[path = "../../src/http/filter.rs"]
mod filter;
#[path = "../../src/http/parser.rs"]
mod parser;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    parser::check(bytes);
    edits::check(bytes);
    filter::check(bytes);
    balance::check(bytes);
});
