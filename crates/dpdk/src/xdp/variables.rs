//! The variables of the programs, in memory that kernel and process share.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mmb_dpdk_sys as sys;

use super::fast_path::Member;
use super::program::Steering;

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

/// The variables of the tc programs (`struct tc_state`).
#[derive(Debug)]
#[repr(C)]
pub(super) struct TcVariables {
    pub(super) steer: Variables,
    pub(super) engaged: AtomicU32,
    pub(super) if_index: AtomicU32,
    padding: [AtomicU32; 14],
}

const _: () = {
    assert!(size_of::<TcVariables>() == size_of::<sys::tc_state>());
    assert!(offset_of!(TcVariables, engaged) == offset_of!(sys::tc_state, engaged));
    assert!(offset_of!(TcVariables, if_index) == offset_of!(sys::tc_state, if_index));
};
