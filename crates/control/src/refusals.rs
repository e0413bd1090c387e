//! Counters of what the control API refused.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use indexmap::IndexMap;

/// What the API refused.
#[derive(Debug, Default)]
pub struct ApiCounters {
    /// Connections beyond the limit.
    pub connections: AtomicU64,
    /// Connections that were closed because the head of a request did not come.
    pub head_timeouts: AtomicU64,
    /// Requests whose body did not come.
    pub body_timeouts: AtomicU64,
    /// Requests whose body was too large, alone or together with others.
    pub body_bytes: AtomicU64,
    /// Connections whose TLS handshake failed or did not end in time.
    pub handshakes: AtomicU64,
    /// Requests on the network without valid credentials.
    pub credentials: AtomicU64,
    /// Requests that the role of the client does not permit.
    pub forbidden: AtomicU64,
}

impl ApiCounters {
    /// The counters by the names of the metrics.
    pub fn by_reason(&self) -> IndexMap<String, u64> {
        let counters = [
            ("connections", &self.connections),
            ("head-timeout", &self.head_timeouts),
            ("body-timeout", &self.body_timeouts),
            ("body-bytes", &self.body_bytes),
            ("handshake", &self.handshakes),
            ("credentials", &self.credentials),
            ("role", &self.forbidden),
        ];
        counters.into_iter().map(|(name, counter)| (name.to_owned(), counter.load(Relaxed))).collect()
    }
}
