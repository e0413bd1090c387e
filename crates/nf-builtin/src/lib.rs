//! The network functions that come with mmb.
//!
//! Each function is a folder. [`registry`] makes all of them known, together with the type `flow` of the SDK.
//! What several functions use (clauses, counters, queues to a background thread, TCP segments) is in
//! `shared`.

#![forbid(unsafe_code)]

mod acl;
mod count;
mod digest;
mod http_edit;
mod http_filter;
mod http_lb;
mod http_log;
mod lb;
mod log;
mod mark;
mod mirror;
mod monitor;
mod mss_clamp;
mod nat;
mod pattern_match;
mod payload_count;
mod police;
mod proxy;
mod respond;
mod shared;
mod sieve;
mod sni;
mod split;
mod synproxy;
mod url_rewrite;

use mmb_nf::Registry;

use pattern_match::{BodyMatch, PatternEdit, PatternMatch};

/// A registry with `flow` and all built-in functions.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add::<acl::Acl>();
    registry.add::<count::Count>();
    registry.add_stream::<digest::Digest>();
    registry.add_stream::<http_edit::HttpEdit>();
    registry.add_stream::<http_filter::HttpFilter>();
    registry.add::<http_lb::HttpLb>();
    registry.add_stream::<http_log::HttpLog>();
    registry.add::<lb::Lb>();
    registry.add::<log::Log>();
    registry.add::<mark::Mark>();
    registry.add::<mirror::Mirror>();
    registry.add_stream::<PatternMatch>();
    registry.add_stream_variant::<PatternEdit>(pattern_match::is_edit);
    registry.add_stream_variant::<BodyMatch>(pattern_match::reads_bodies);
    registry.add::<monitor::Monitor>();
    registry.add::<mss_clamp::MssClamp>();
    registry.add::<nat::Nat>();
    registry.add_stream::<payload_count::PayloadCount>();
    registry.add::<police::Police>();
    registry.add_l7::<proxy::Proxy>();
    registry.add_l7::<respond::Respond>();
    registry.add::<sieve::PacketPrimes>();
    registry.add_l7_variant::<sieve::RequestPrimes>(sieve::is_for_requests);
    registry.add_stream::<sni::Sni>();
    registry.add::<split::Split>();
    registry.add::<synproxy::Synproxy>();
    registry.add_l7::<url_rewrite::UrlRewrite>();
    registry
}
