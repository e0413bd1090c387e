//! Limits of the control API: what one client can take from the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::document::BODY_LIMIT;
use super::role::Role;

/// Bytes of each request body that count for no limit of all bodies, so that short commands always fit.
pub(super) const FREE_BYTES: usize = 64 << 10;

/// Limits of the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for the head of a request, and for the next request on a connection.
    pub head: Duration,
    /// Time for the next piece of a request body.
    pub body: Duration,
    /// Maximum number of connections of each role: readers, operators, owners.
    pub connections: [usize; 3],
    /// Maximum number of bytes of all request bodies of each role that are received or in work.
    pub body_bytes: [usize; 3],
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            connections: [128, 128, 32],
            body_bytes: [0, BODY_LIMIT, BODY_LIMIT],
        }
    }
}

/// The connections and bytes that are in use. Each role has its own, so that readers cannot lock operators
/// out, nor operators the owner.
#[derive(Debug)]
pub(super) struct Usage {
    connections: [Arc<Semaphore>; 3],
    bodies: [Arc<AtomicUsize>; 3],
    limits: Limits,
}

impl Usage {
    pub fn new(limits: Limits) -> Usage {
        Usage {
            connections: limits.connections.map(|limit| Arc::new(Semaphore::new(limit))),
            bodies: Default::default(),
            limits,
        }
    }

    /// A place for a connection, if there is one.
    pub fn connection(&self, role: Role) -> Option<OwnedSemaphorePermit> {
        self.connections[role as usize].clone().try_acquire_owned().ok()
    }

    /// An empty body of a request.
    pub fn body(&self, role: Role) -> HeldBody {
        let limit = self.limits.body_bytes[role as usize];
        HeldBody { bytes: Vec::new(), counted: 0, all: self.bodies[role as usize].clone(), limit }
    }
}

/// A request body, which counts while it exists.
pub(super) struct HeldBody {
    bytes: Vec<u8>,
    counted: usize,
    all: Arc<AtomicUsize>,
    limit: usize,
}

impl HeldBody {
    /// Appends a piece. False: there is no room for it.
    pub fn extend(&mut self, piece: &[u8]) -> bool {
        let counted = (self.bytes.len() + piece.len()).saturating_sub(FREE_BYTES);
        let more = counted - self.counted;
        if self.all.fetch_add(more, Relaxed) + more > self.limit && more > 0 {
            self.all.fetch_sub(more, Relaxed);
            return false;
        }
        self.counted = counted;
        self.bytes.extend_from_slice(piece);
        true
    }

    /// Number of bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_a_limit_and_short_ones_need_none() {
        let limits = Limits { body_bytes: [0, 1000, 1000], ..Limits::default() };
        let usage = Usage::new(limits);
        let mut large = usage.body(Role::Operator);
        assert!(large.extend(&vec![0; FREE_BYTES]) && large.extend(&[0; 900]));
        let mut second = usage.body(Role::Operator);
        assert!(second.extend(&vec![0; FREE_BYTES + 100]) && !second.extend(&[0]));
        assert!(usage.body(Role::Operator).extend(&[0; 4096]), "short");
        assert!(usage.body(Role::Owner).extend(&vec![0; FREE_BYTES + 1000]), "of another role");
        assert!(!usage.body(Role::Reader).extend(&vec![0; FREE_BYTES + 1]));
        drop(large);
        assert!(second.extend(&[0; 900]) && second.len() == FREE_BYTES + 1000);
    }

    #[test]
    fn each_role_has_its_own_connections() {
        let usage = Usage::new(Limits { connections: [0, 2, 1], ..Limits::default() });
        let held: Vec<_> = std::iter::from_fn(|| usage.connection(Role::Operator)).collect();
        assert_eq!(held.len(), 2);
        assert!(usage.connection(Role::Owner).is_some() && usage.connection(Role::Reader).is_none());
        drop(held);
        assert!(usage.connection(Role::Operator).is_some());
    }
}
