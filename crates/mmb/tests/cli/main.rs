//! The program from outside: what it prints, and its exit status.

// A helper that cannot go on fails its test.
#![allow(clippy::unwrap_used)]

mod daemon;
mod import;
mod offline;
mod support;
