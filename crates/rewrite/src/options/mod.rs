//! Edits of TCP options.
//!
//! Theory of operation. The edits of all matching rules are applied in order to a list of the packet's
//! options before anything is written. The list holds the readable options
//! ([`tcp_options`](mmb_packet::tcp_options)). If the result does not fit, the packet stays unchanged. The
//! write depends on how the list has changed:
//!
//! * Not at all: nothing is written, so padding and unreadable bytes stay.
//! * Only in values, with the same kinds and lengths in the same order: the values are overwritten in place
//!   (`writes`). MSS clamping is this case; it needs no list.
//! * Otherwise the options are laid out again (`list`). If their length changes, the headers before them
//!   move; the payload never does.
//!
//! A header value may be written several times, and intermediate lists may exceed the maximum length. Only
//! the result counts.

mod apply;
mod commit;
mod compile;
mod edit;
mod list;
mod writes;

#[cfg(test)]
mod tests;

pub(crate) use apply::edit;
pub(crate) use compile::Compiler;
pub(crate) use edit::OptionEdit;
