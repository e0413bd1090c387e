//! Packet edits: a rule's `mod`, `add` and `strip` targets, compiled once and applied to every matching
//! packet.
//!
//! Theory of operation. An [`EditProgram`] holds, for each header it writes, the 16-bit words that change,
//! as `new = (old & keep) | key`. Fields that share a word share its edit. At compile time a later `mod` of
//! the same bits replaces an earlier one. Words are grouped by the checksums that cover them
//! (`words::Part`). Applying a program edits the words of the network header, then those of the transport
//! header, and updates the checksums by the difference (RFC 1624, equation 3). It does not read the
//! payload.
//!
//! Incremental updates have these corner cases:
//!
//! * An invalid checksum stays invalid by the same difference, so the receiver still detects the error.
//! * A UDP checksum of zero means "none" and stays zero. A computed zero is written as 0xffff (RFC 768).
//! * ICMP has no pseudo header, so all its words can be zero, and then only 0xffff is valid. A message of
//!   type and code zero whose checksum becomes zero therefore gets 0xffff, which is valid in any case.
//! * Addresses are part of the transport checksum's pseudo header, except `ip6-daddr` when a routing header
//!   has segments left (RFC 8200, 8.1).
//! * The first fragment carries the datagram's transport checksum. The incremental update keeps it valid
//!   without the other fragments. Later fragments have neither transport header nor checksum.
//! * Edits of headers that a packet does not have are skipped.
//!
//! TCP options have no fixed offset and change the packet's length. Their edits (see `options`) are
//! computed for all matching rules before anything is written. A packet whose options would not fit stays
//! unchanged.

#![forbid(unsafe_code)]

mod apply;
mod options;
mod program;
mod words;

pub use apply::{EditLimits, apply_programs};
pub use program::EditProgram;
