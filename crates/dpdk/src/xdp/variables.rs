//! The variables of the programs, in memory that kernel and process share.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mmb_dpdk_sys as sys;

use super::fast_path::Member;
use super::program::Steering;
use crate::port::TwinTraffic;

/// The variables of a program (`struct steer_state`).
#[derive(Debug)]
#[repr(C)]
pub(super) struct Variables {
    gate: AtomicU64,
    port: AtomicU32,
    padding: AtomicU32,
    secrets: [AtomicU32; sys::STEER_FAST_SECRETS as usize],
}

impl Variables {
    /// Tells the program the port's number and the secrets of the fast path, before it is attached.
    pub(super) fn join(&self, member: &Member) {
        self.port.store(member.port.0, Ordering::Release);
        for (to, secret) in self.secrets.iter().zip(member.path.secrets()) {
            to.store(*secret, Ordering::Release);
        }
    }

    /// Sets which frames are addressed to the interface; None: all of them.
    pub(super) fn set_gate(&self, steering: Option<&Steering>) {
        let gate = steering.map_or(0, |steering| sys::STEER_ON | mac_word(steering.mac));
        self.gate.store(gate, Ordering::Release);
    }
}

/// An Ethernet address as the program reads it: two bytes at a time, the first ones in the lowest bits.
fn mac_word(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    [[e, f], [c, d], [a, b]]
        .into_iter()
        .fold(0, |word, bytes| word << 16 | u64::from(u16::from_ne_bytes(bytes)))
}

const _: () = {
    assert!(size_of::<Variables>() == size_of::<sys::steer_state>());
    assert!(offset_of!(Variables, gate) == offset_of!(sys::steer_state, gate));
    assert!(offset_of!(Variables, port) == offset_of!(sys::steer_state, port));
    assert!(offset_of!(Variables, secrets) == offset_of!(sys::steer_state, secrets));
};

/// Packets and their bytes (`struct tc_traffic`).
#[derive(Debug)]
#[repr(C)]
pub(super) struct Traffic {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// The variables of the tc programs (`struct tc_state`).
#[derive(Debug)]
#[repr(C)]
pub(super) struct TcVariables {
    pub(super) steer: Variables,
    pub(super) engaged: AtomicU32,
    pub(super) if_index: AtomicU32,
    pub(super) twin: AtomicU32,
    padding: AtomicU32,
    to_twin: Traffic,
    from_twin: Traffic,
    padding2: [AtomicU32; 4],
}

impl TcVariables {
    /// What the programs have passed between the interface and its twin.
    pub(super) fn twin_traffic(&self) -> TwinTraffic {
        let TcVariables { to_twin, from_twin, .. } = self;
        TwinTraffic {
            packets_to_twin: to_twin.packets.load(Ordering::Relaxed),
            bytes_to_twin: to_twin.bytes.load(Ordering::Relaxed),
            packets_from_twin: from_twin.packets.load(Ordering::Relaxed),
            bytes_from_twin: from_twin.bytes.load(Ordering::Relaxed),
        }
    }
}

const _: () = {
    assert!(size_of::<TcVariables>() == size_of::<sys::tc_state>());
    assert!(offset_of!(TcVariables, engaged) == offset_of!(sys::tc_state, engaged));
    assert!(offset_of!(TcVariables, if_index) == offset_of!(sys::tc_state, if_index));
    assert!(offset_of!(TcVariables, twin) == offset_of!(sys::tc_state, twin));
    assert!(offset_of!(TcVariables, to_twin) == offset_of!(sys::tc_state, to_twin));
    assert!(offset_of!(TcVariables, from_twin) == offset_of!(sys::tc_state, from_twin));
    assert!(size_of::<Traffic>() == size_of::<sys::tc_traffic>());
};
