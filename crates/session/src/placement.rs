//! Placement of flows on workers.
//!
//! Theory of operation. The hash of a key names its home worker, which receives packets with that key first.
//! Packets to addresses of NAT go to the worker that has given out the port. A session may live at
//! another worker than the home of its key: then the home worker hands packets off. A packet that was handed
//! off is not handed off again, with one exception: a worker that received it by mistake returns it to the
//! home worker, once.

use bytemuck::Zeroable;
use mmb_flow::Key;
use mmb_packet::{Kind, PacketFlags, flow_hash4, flow_hash6};

use crate::SessionConfig;

impl SessionConfig {
    /// Returns the worker that receives packets with this key first, NAT aside.
    pub(crate) fn home_worker(&self, key: &Key) -> u16 {
        ((u64::from(flow_hash(key)) * u64::from(self.workers)) >> 32) as u16
    }

    /// Whether this worker is the home of the key.
    pub(crate) fn is_home(&self, key: &Key) -> bool {
        self.home_worker(key) == self.worker
    }

    /// Whether a packet with this key and these flags of its metadata may be handed to another worker.
    pub(crate) fn can_hand_off(&self, key: &Key, meta_flags: PacketFlags) -> bool {
        let is_final = meta_flags.contains(PacketFlags::HANDED)
            && meta_flags.contains(PacketFlags::ASTRAY)
            && !self.is_home(key);
        self.workers > 1 && !meta_flags.contains(PacketFlags::REFUSED) && !is_final
    }
}

/// Returns [`mmb_packet::Meta::flow_hash`] of packets with this key.
pub(crate) fn flow_hash(key: &Key) -> u32 {
    let ports = match Kind(key.kind).l4() {
        Kind::TCP | Kind::UDP => bytemuck::cast([key.source_port, key.destination_port]),
        _ => <[u8; 4]>::zeroed(),
    };
    if key.is_ip4() {
        let [source, ..]: [[u8; 4]; 4] = bytemuck::cast(key.source);
        let [destination, ..]: [[u8; 4]; 4] = bytemuck::cast(key.destination);
        flow_hash4(bytemuck::cast([source, destination]), ports, key.proto)
    } else {
        flow_hash6(&bytemuck::cast([key.source, key.destination]), ports, key.proto)
    }
}
