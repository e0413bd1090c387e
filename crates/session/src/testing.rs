//! An environment, a store and packets for unit tests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use mmb_flow::{Key, NatConfig, SessionSettings, Table};
use mmb_packet::{Kind, Meta, VecPacket};
use mmb_policy::Policy;

use crate::open::plan::wide;
use crate::store::SessionStore;
use crate::{Environment, SessionConfig, SharedSessions};

/// A policy without NAT, whose rule counters are kept in a map.
#[derive(Debug, Default)]
pub(crate) struct CountingRules {
    pub policy: Policy,
    counts: RefCell<HashMap<u32, (u64, u64)>>,
}

impl CountingRules {
    /// Returns packets and bytes counted for the rule in a slot.
    pub fn counts(&self, slot: u32) -> (u64, u64) {
        self.counts.borrow().get(&slot).copied().unwrap_or_default()
    }
}

impl Environment for CountingRules {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn nat(&self) -> &Arc<NatConfig> {
        static NONE: LazyLock<Arc<NatConfig>> = LazyLock::new(Arc::default);
        &NONE
    }

    fn settings(&self) -> SessionSettings {
        SessionSettings::default()
    }

    fn out_port(&self, in_port: u16) -> u16 {
        in_port ^ 1
    }

    fn count(&self, slot: u32, packets: u32, bytes: u64) {
        let mut counts = self.counts.borrow_mut();
        let entry = counts.entry(slot).or_default();
        (entry.0, entry.1) = (entry.0 + u64::from(packets), entry.1 + bytes);
    }

    /// Not kept: [`CountingRules::counts`] is of matches.
    fn count_decided(&self, _: u32, _: u32) {}
}

/// Returns a store of one worker without sessions.
pub(crate) fn empty_store() -> SessionStore {
    let config = SessionConfig { sessions: 64, worker: 0, workers: 1, seed: 1, scratchpad: 64 };
    let shared = Arc::new(SharedSessions::new(config.sessions, config.workers, config.seed));
    SessionStore::new(config, shared, Table::new).expect("memory")
}

/// Returns the key of UDP packets from 10.0.0.1 port 1000 to 10.0.0.2 port 2000.
pub(crate) fn udp_key() -> Key {
    let address = |last| wide(u32::from_be_bytes([10, 0, 0, last]));
    Key {
        source: address(1),
        destination: address(2),
        source_port: 1000_u16.to_be_bytes(),
        destination_port: 2000_u16.to_be_bytes(),
        kind: Kind::IP4 | Kind::UDP,
        proto: 17,
        ..Key::default()
    }
}

/// Makes a frame with this key, with 8 bytes of payload. `fragment`: the fragment field of the IPv4 header
/// (RFC 791, 3.1). A later fragment has its 16 bytes all the same.
pub(crate) fn udp_frame(key: &Key, fragment: u16) -> (VecPacket, Meta) {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 36, 0, 7]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, 17, 0, 0]);
    frame.extend(key.source.first_chunk::<4>().expect("address"));
    frame.extend(key.destination.first_chunk::<4>().expect("address"));
    frame.extend(key.source_port);
    frame.extend(key.destination_port);
    frame.extend([0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut meta = Meta::default();
    mmb_packet::parse(&frame, frame.len(), &mut meta).expect("a valid frame");
    (VecPacket::new(&frame), meta)
}
