//! Places of connections without valid credentials: so many of all clients, and so many of one source.
//!
//! A source is an IPv4 address, or the first 64 bits of an IPv6 address: a host has all addresses of such a
//! subnet (RFC 8981).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The places.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    most_of_source: usize,
    /// Places in use by source. There are `most` entries at most.
    used: Mutex<HashMap<IpAddr, usize>>,
}

/// A place in use, until it is dropped.
#[derive(Debug)]
pub(super) struct StrangerPlace {
    places: Arc<Places>,
    source: IpAddr,
}

impl Places {
    pub fn new(most: usize, most_of_source: usize) -> Places {
        Places { most, most_of_source, used: Mutex::default() }
    }

    /// A place for a client with this address, if there is one.
    pub fn take(self: &Arc<Places>, address: IpAddr) -> Option<StrangerPlace> {
        let source = source_of(address);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let own = used.get(&source).copied().unwrap_or(0);
        if own >= self.most_of_source || used.values().sum::<usize>() >= self.most {
            return None;
        }
        used.insert(source, own + 1);
        Some(StrangerPlace { places: self.clone(), source })
    }
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        let mut used = self.places.used.lock().unwrap_or_else(PoisonError::into_inner);
        let own = used.remove(&self.source).unwrap_or(0);
        if own > 1 {
            used.insert(self.source, own - 1);
        }
    }
}

/// The address that stands for a source.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_leaves_places_for_others() {
        let places = Arc::new(Places::new(5, 2));
        let take = |address: &str| places.take(address.parse().unwrap());
        let held = [take("192.0.2.1"), take("192.0.2.1"), take("::ffff:192.0.2.1")];
        assert!(held[0].is_some() && held[1].is_some() && held[2].is_none());
        let six = [take("2001:db8::1"), take("2001:db8::2"), take("2001:db8::3")];
        assert!(six[1].is_some() && six[2].is_none());
        let last = take("2001:db8:0:1::1");
        assert!(last.is_some() && take("192.0.2.9").is_none(), "all are in use");
        drop(held);
        let again = [take("192.0.2.9"), take("192.0.2.1")];
        assert!(again.iter().all(Option::is_some) && take("192.0.2.1").is_none());
        drop((six, last, again));
        assert!(places.used.lock().unwrap().is_empty());
    }
}
