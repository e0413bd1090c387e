//! The program `mmb` with the built-in network functions.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    mmb::run(mmb::registry())
}
