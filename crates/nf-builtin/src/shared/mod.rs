//! What several functions use.

pub(crate) mod clauses;
#[cfg(test)]
pub(crate) mod connection;
pub(crate) mod content_coding;
pub(crate) mod direction;
pub(crate) mod endpoints;
pub(crate) mod export_queue;
pub(crate) mod handshake;
pub(crate) mod http;
pub(crate) mod http_rules;
pub(crate) mod input_file;
pub(crate) mod label;
pub(crate) mod line_log;
pub(crate) mod log_file;
pub(crate) mod wildcard;
