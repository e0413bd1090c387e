//! The fast path: flows whose packets the kernel rewrites and forwards by itself.
//!
//! # Theory of operation
//! The XDP program of every AF_XDP port (bpf/fast_xdp.h) looks up a packet's flow before it hands the packet
//! to the socket, and so does the tc program of an AF_PACKET port ([`super::tc`]). The action of a flow is
//! stored in a *slot*: three cache lines of memory that kernel and process share. An index in shared memory
//! leads from a flow's key to its slot ([`super::fast_index`]). A map leads from a port number to its
//! interface, one for XDP and one for tc. All ports of the process use the same slots, index and maps.
//! Installing a flow, revoking it and reading its counters take no system call.
//!
//! A wrong index entry cannot make the kernel apply one flow's action to another flow's packets:
//!
//! * a slot holds the whole key of its flow, which the program compares;
//! * a slot has a version, by which the program detects that it is being written;
//! * a slot has a generation, which must be the one in force;
//! * port numbers are never reused, so that a packet for a closed port goes to the socket.
//!
//! Nothing is pinned. When the process ends, for whatever reason, the kernel frees maps and programs.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mmb_dpdk_sys as sys;

use super::error::XdpError;
use super::fast_flow::{FAST_SLOTS, FastAction, FastFlowStats, FastGranularity, FastKey, FastPort};
use super::fast_index::Index;
use super::format::{self, Secrets};
use super::maps::{Mapped, create, delete, errno_of, put};
use super::slot::Slot;

/// The header slot. Only its stamp counts, the one in force, and its time, the heartbeat.
const HEADER: u32 = 0;

/// The tables that all ports of the process share. One thread at a time uses a slot and its key;
/// everything else may be called from any thread.
#[derive(Debug)]
pub struct FastPath {
    pub(super) index: Index,
    slots: OwnedFd,
    /// The interfaces by port number, for XDP and for tc.
    ports: OwnedFd,
    interfaces: OwnedFd,
    /// The values of `slots`.
    memory: Mapped<Slot>,
}

/// The process's fast path, while a port uses it.
static SHARED: Mutex<Weak<FastPath>> = Mutex::new(Weak::new());
/// The number of the port that was opened last.
static LAST_PORT: AtomicU32 = AtomicU32::new(0);

/// The stamp of a generation and granularity; None: no such generation. A pair's entry has the stamp of
/// flows.
fn stamp(generation: u64, granularity: FastGranularity) -> Option<u64> {
    let destination =
        if granularity == FastGranularity::Destination { sys::STEER_FAST_DESTINATION } else { 0 };
    let is_valid = (1..1 << (64 - sys::STEER_FAST_STAMP_BITS)).contains(&generation);
    is_valid.then_some(generation << sys::STEER_FAST_STAMP_BITS | u64::from(destination))
}

impl FastPath {
    /// The process's fast path; makes it if no port uses one.
    pub(super) fn shared() -> Result<Arc<FastPath>, XdpError> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = shared.upgrade() {
            return Ok(path);
        }
        let path = Arc::new(FastPath::create().map_err(XdpError::at("make the fast path"))?);
        *shared = Arc::downgrade(&path);
        Ok(path)
    }

    fn create() -> Result<FastPath, i32> {
        use sys::{BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_DEVMAP_HASH, BPF_MAP_TYPE_HASH};
        let index = Index::create(c"fast_index", sys::STEER_FAST_BUCKETS)?;
        let slots = create::<u32, Slot>(c"fast_slots", BPF_MAP_TYPE_ARRAY, sys::BPF_F_MMAPABLE, FAST_SLOTS)?;
        let ports = create::<u32, u32>(c"fast_ports", BPF_MAP_TYPE_DEVMAP_HASH, 0, sys::STEER_FAST_PORTS)?;
        let interfaces = create::<u32, sys::fast_interface>(
            c"fast_interfaces",
            BPF_MAP_TYPE_HASH,
            0,
            sys::STEER_FAST_PORTS,
        )?;
        // SAFETY: the map was created with this many values of this type; a slot consists of atomics.
        let memory = unsafe { Mapped::map(slots.as_raw_fd(), FAST_SLOTS as usize) };
        Ok(FastPath { index, slots, ports, interfaces, memory: memory.map_err(|error| errno_of(&error))? })
    }

    /// The maps, by the names that the programs give them.
    pub(super) fn maps(&self) -> [(&'static CStr, RawFd); 4] {
        [
            (c"fast_index", self.index.map()),
            (c"fast_slots", self.slots.as_raw_fd()),
            (c"fast_ports", self.ports.as_raw_fd()),
            (c"fast_interfaces", self.interfaces.as_raw_fd()),
        ]
    }

    /// The secrets of the index's hash function.
    pub(super) fn secrets(&self) -> &Secrets {
        self.index.secrets()
    }

    /// A slot that can hold a flow.
    fn slot(&self, number: u32) -> Option<&Slot> {
        self.memory.get(number as usize).filter(|_| number != HEADER)
    }

    /// Sets the generation in force (below 2^62) and the granularity of its keys. From the next packet on,
    /// the program ignores entries of other generations. 0: it ignores all.
    pub fn set_generation(&self, generation: u64, granularity: FastGranularity) {
        if let Some(header) = self.memory.get(HEADER as usize) {
            let pairs =
                if granularity == FastGranularity::Pair { u64::from(sys::STEER_FAST_PAIRS) } else { 0 };
            // Both in one word, so that no packet sees one without the other.
            let stamp = stamp(generation, granularity).map_or(0, |stamp| stamp | pairs);
            header.stamp.store(stamp, Ordering::Release);
        }
    }

    /// Tells the program that the process was alive at a time, in nanoseconds of CLOCK_MONOTONIC_COARSE. A
    /// second after it, the program ignores all entries, until the next heartbeat. It obeys them before the
    /// first one.
    pub fn beat(&self, time: u64) {
        if let Some(header) = self.memory.get(HEADER as usize) {
            header.last.store(time.max(1), Ordering::Release);
        }
    }

    /// Makes the kernel forward the packets of a flow while `generation` is in force. The slot must be free;
    /// its counters start at 0. A flow may have a second slot; then either of the two counts a packet.
    ///
    /// # Errors
    /// EINVAL: no such slot or protocol, generation 0, addresses of different families, or contradictory
    /// options. ENOSPC: the index has no room for this key; other keys may still fit.
    pub fn install(
        &self,
        number: u32,
        generation: u64,
        key: &FastKey,
        action: &FastAction,
    ) -> Result<(), i32> {
        let slot = self.slot(number).ok_or(libc::EINVAL)?;
        let raw = format::key(key).ok_or(libc::EINVAL)?;
        let words = format::action(key, action).ok_or(libc::EINVAL)?;
        slot.write(stamp(generation, key.granularity).ok_or(libc::EINVAL)?, &raw, &words);
        if !self.index.insert(&raw, number) {
            self.revoke(number);
            return Err(libc::ENOSPC);
        }
        Ok(())
    }

    /// Sends the packets of a slot's flow to the socket again. A packet in progress may still be counted.
    pub fn revoke(&self, slot: u32) {
        if let Some(slot) = self.slot(slot) {
            slot.stamp.store(0, Ordering::Release);
        }
    }

    /// Removes a flow from the index, before its slot is reused. Does nothing if the key does not lead to the
    /// slot.
    pub fn remove(&self, key: &FastKey, slot: u32) {
        if let Some(raw) = format::key(key) {
            self.index.remove(&raw, slot);
        }
    }

    /// Counters of a slot since its flow was installed.
    pub fn flow_stats(&self, slot: u32) -> FastFlowStats {
        self.slot(slot).map(Slot::stats).unwrap_or_default()
    }
}

/// A port's membership in the fast path. After it is dropped, no packet is redirected to the port.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) path: Arc<FastPath>,
    pub(crate) port: FastPort,
    /// The interface for tc, as it is in the map: its index, and whether packets go to its peer.
    interface: Mutex<(u32, bool)>,
}

impl Member {
    /// Gives the interface with that index, in the network namespace of the calling thread, a port number.
    pub(super) fn join(if_index: u32) -> Result<Member, XdpError> {
        let failed = XdpError::at("join the fast path");
        let path = FastPath::shared()?;
        let last = LAST_PORT
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1))
            .map_err(|_| failed(libc::EOVERFLOW))?;
        let port = last + 1;
        let member = Member { path, port: FastPort(port), interface: Mutex::new((if_index, false)) };
        // SAFETY: key and value have the sizes of this map.
        unsafe { put(member.path.ports.as_raw_fd(), &port.to_ne_bytes(), &if_index.to_ne_bytes()) }
            .map_err(&failed)?;
        member.put_interface((if_index, false)).map_err(&failed)?;
        Ok(member)
    }

    /// Lets tc give the port's packets to the other end of its veth pair once it has seen a frame from there,
    /// or makes it send all out of the interface. If the kernel refuses, all is as before.
    pub(crate) fn set_to_peer(&self, to_peer: bool) {
        let mut interface = self.interface.lock().unwrap_or_else(PoisonError::into_inner);
        if interface.1 != to_peer && self.put_interface((interface.0, to_peer)).is_ok() {
            interface.1 = to_peer;
        }
    }

    fn put_interface(&self, (index, to_peer): (u32, bool)) -> Result<(), i32> {
        // struct fast_interface, without an address of the peer.
        let value = [index.to_ne_bytes(), u32::from(to_peer).to_ne_bytes(), [0; 4], [0; 4]].concat();
        // SAFETY: key and value have the sizes of this map.
        unsafe { put(self.path.interfaces.as_raw_fd(), &self.port.0.to_ne_bytes(), &value) }
    }
}

const _: () = assert!(size_of::<sys::fast_interface>() == 16);

impl Drop for Member {
    fn drop(&mut self) {
        for map in [&self.path.ports, &self.path.interfaces] {
            // Fails for XDP when the interface is gone, and its entry with it.
            // SAFETY: the key has the size of this map's keys.
            let _ = unsafe { delete(map.as_raw_fd(), &self.port.0.to_ne_bytes()) };
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
