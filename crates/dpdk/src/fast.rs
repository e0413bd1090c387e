//! The fast path of AF_XDP ports: flows whose packets the kernel rewrites and sends on by itself.
//!
//! # Theory of operation
//! The program of every AF_XDP port (bpf/fast.h) looks for a packet's flow before it hands the packet to the socket. What it
//! does with the packets of a flow stands in a *slot*: three cache lines of memory that kernel and process share. An index in
//! such memory leads from a flow's key to its slot ([`crate::fast_index`]), so that handing a flow over, taking it back and
//! reading what was counted are no system calls; and a map leads from a port's number to its interface. All ports of the
//! process have these three together.
//!
//! Nothing in here can make the kernel do one flow's work with the packets of another. A slot has the whole key of its
//! flow, so that whatever leads to a slot that has a new user leads nowhere; a version, by which the program notices that it is
//! being written; and a generation, which has to be the one in force. Ports have numbers that never come back: what goes to
//! a closed port goes to the socket, whoever has its interface's index by then.
//!
//! It all ends with the process, whatever ends that: nothing is pinned, and what is mapped is the kernel's.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mmb_dpdk_sys as sys;

use crate::error::strerror;
use crate::fast_index::Index;
use crate::fast_raw::{self, Action, Key, Secrets};
use crate::netdev_xdp;
use crate::port::Port;
use crate::xdp::Refusal;
use crate::xdp_map::{Mapped, create, delete, number, put};

/// Slots, of which number 0 cannot be used.
pub const FAST_SLOTS: u32 = sys::STEER_FAST_SLOTS;
/// Number 0: of it only the stamp counts, which is the one in force.
const HEADER: u32 = 0;

/// The number of a port on the fast path. No other port of the process ever has it; one that no port has leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FastPort(pub u32);

/// What names a flow: one direction of a conversation, as it comes into a port. Or, of many of them, what they have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FastKey {
    /// Whether it is one flow's, else that of [`FastKey::for_destination`] or [`FastKey::without_ports`].
    pub granularity: FastGranularity,
    /// Where it comes in.
    pub port: FastPort,
    /// TCP (6), UDP (17), ICMP (1) or ICMPv6 (58).
    pub proto: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port; of echo requests and replies the identifier.
    pub source_port: u16,
    /// Destination port; of echo requests and replies the type.
    pub destination_port: u16,
}

/// What is done with the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastAction {
    /// Where they go out. Frames to an interface that takes none in this way are lost ([`crate::Port::can_receive_redirects`]).
    pub out: FastPort,
    /// Ethernet addresses that they get; None: they keep theirs.
    pub macs: Option<FastMacs>,
    /// Whether TTL or hop limit goes down by one. Packets that would be left with none go to the socket.
    pub decrement_ttl: bool,
    /// Longest IP packet, with what the frame holds behind it; longer ones go to the socket.
    pub max_len: u16,
    /// Addresses and ports that they get; None: they keep theirs.
    pub translation: Option<FastTranslation>,
    /// Whether [`FastFlowStats::tcp`] is kept. Not together with `control`.
    pub track: bool,
    /// TCP: whether segments that begin, end or reset connections, and those without ACK, go out as all others do; else they
    /// go to the socket.
    pub control: bool,
    /// TCP: the same, but only for those with FIN and ACK, and neither SYN nor RST.
    pub fin: bool,
    /// TCP, with `track`: what the first segment has to acknowledge; those that come before it go to the socket.
    pub awaits: Option<u32>,
}

impl FastAction {
    /// Sends packets of up to that length on as they are, but for those that begin and end connections.
    pub fn forward_unchanged(out: FastPort, max_len: u16) -> FastAction {
        let (macs, translation, awaits) = (None, None, None);
        let (decrement_ttl, track, control, fin) = (false, false, false, false);
        FastAction { out, macs, decrement_ttl, max_len, translation, track, control, fin, awaits }
    }
}

/// Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastMacs {
    /// Destination.
    pub destination: [u8; 6],
    /// Source.
    pub source: [u8; 6],
}

/// Addresses and ports after a translation, those that stay as they are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastTranslation {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port; of echo requests and replies the identifier.
    pub source_port: u16,
    /// Destination port; nothing to echo requests and replies.
    pub destination_port: u16,
}

/// What the kernel has done with a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastFlowStats {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames. A packet that is being counted may be in one of the two and not in the other.
    pub bytes: u64,
    /// When the last one was, in nanoseconds of CLOCK_MONOTONIC_COARSE; 0: there was none.
    pub last: u64,
    /// TCP: which of [`FAST_FIN`] and [`FAST_RST`] have gone out. The rest includes the segments of those that are here.
    pub ended: u8,
    /// Where TCP stands, if that is tracked and there was a packet.
    pub tcp: Option<FastTcpState>,
}

/// How far one direction of a TCP connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastTcpState {
    /// The sequence number behind the furthest byte; FIN counts as one.
    pub end: u32,
    /// The furthest acknowledgement.
    pub ack: u32,
    /// The window that came with it, unscaled.
    pub window: u16,
}

/// In [`FastFlowStats::ended`]: a FIN.
pub const FAST_FIN: u8 = 1;
/// In [`FastFlowStats::ended`]: an RST.
pub const FAST_RST: u8 = 4;

/// What settles where a packet goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FastGranularity {
    /// All that a [`FastKey`] names.
    #[default]
    Flow,
    /// Of some packets all that but the ports: keys are those that [`FastKey::without_ports`] makes as well as those of flows. A packet with
    /// both is the pair's.
    Pair,
    /// Where it comes in and its destination: keys are those that [`FastKey::for_destination`] makes. Packets with a source that no packet
    /// may have (groups, loopback, unspecified, link-local of IPv6) go to the socket.
    Destination,
}

impl FastKey {
    /// All packets to a destination that come into a port, whatever else they are: for [`FastGranularity::Destination`].
    pub fn for_destination(port: FastPort, destination: IpAddr) -> FastKey {
        let source = match destination {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let granularity = FastGranularity::Destination;
        FastKey { granularity, port, proto: 0, source, destination, source_port: 0, destination_port: 0 }
    }

    /// All packets of that protocol between the same addresses, whatever their ports are: for [`FastGranularity::Pair`].
    pub fn without_ports(self) -> FastKey {
        FastKey { granularity: FastGranularity::Pair, source_port: 0, destination_port: 0, ..self }
    }
}

/// What the AF_XDP ports of the process have together. A slot and its key are one thread's business at a time; all else may be
/// called by any.
#[derive(Debug)]
pub struct FastPath {
    pub(crate) index: Index,
    slots: OwnedFd,
    ports: OwnedFd,
    /// The values of `slots`.
    memory: Mapped<Slot>,
}

/// The one that is open.
static SHARED: Mutex<Weak<FastPath>> = Mutex::new(Weak::new());
/// The number of the port that was opened last.
static LAST_PORT: AtomicU32 = AtomicU32::new(0);

/// What a slot says of its generation and its key's granularity, or, but for pairs, the header; None: it cannot be one.
fn stamp(generation: u64, granularity: FastGranularity) -> Option<u64> {
    let granularity =
        if granularity == FastGranularity::Destination { sys::STEER_FAST_DESTINATION } else { 0 };
    let possible = (1..1 << (64 - sys::STEER_FAST_STAMP_BITS)).contains(&generation);
    possible.then_some(generation << sys::STEER_FAST_STAMP_BITS | u64::from(granularity))
}

impl FastPath {
    /// The one that there is, or a new one.
    pub(crate) fn shared() -> Result<Arc<FastPath>, Refusal> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = shared.upgrade() {
            return Ok(path);
        }
        let path = Arc::new(FastPath::create().map_err(|errno| ("make the fast path", errno))?);
        *shared = Arc::downgrade(&path);
        Ok(path)
    }

    fn create() -> Result<FastPath, i32> {
        use sys::{BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_DEVMAP_HASH};
        let index = Index::create(c"fast_index", sys::STEER_FAST_BUCKETS)?;
        let slots = create::<u32, Slot>(c"fast_slots", BPF_MAP_TYPE_ARRAY, sys::BPF_F_MMAPABLE, FAST_SLOTS)?;
        let ports = create::<u32, u32>(c"fast_ports", BPF_MAP_TYPE_DEVMAP_HASH, 0, sys::STEER_FAST_PORTS)?;
        // SAFETY: the map was made so; a slot is made of atomics.
        let memory = unsafe { Mapped::map(slots.as_raw_fd(), FAST_SLOTS as usize) };
        Ok(FastPath { index, slots, ports, memory: memory.map_err(|error| number(&error))? })
    }

    /// The maps by their names in the program.
    pub(crate) fn maps(&self) -> [(&'static CStr, RawFd); 3] {
        let (index, slots, ports) = (self.index.map(), self.slots.as_raw_fd(), self.ports.as_raw_fd());
        [(c"fast_index", index), (c"fast_slots", slots), (c"fast_ports", ports)]
    }

    /// What the program has to mix keys with.
    pub(crate) fn secrets(&self) -> &Secrets {
        self.index.secrets()
    }

    /// A slot that flows can have.
    fn slot(&self, number: u32) -> Option<&Slot> {
        self.memory.get(number as usize).filter(|_| number != HEADER)
    }

    /// Sets the generation in force, below 2^62, and the granularity of its keys: what was installed for another one is not followed
    /// any more, by packets that come in from now on. 0: nothing is.
    pub fn set_generation(&self, generation: u64, granularity: FastGranularity) {
        if let Some(header) = self.memory.get(HEADER as usize) {
            let pairs =
                if granularity == FastGranularity::Pair { u64::from(sys::STEER_FAST_PAIRS) } else { 0 };
            // One word says both, so that no packet meets the one without the other.
            let stamp = stamp(generation, granularity).map_or(0, |stamp| stamp | pairs);
            header.stamp.store(stamp, Ordering::Release);
        }
    }

    /// From now on the packets of a flow that have nothing unusual are dealt with by the kernel, while `generation` is in
    /// force. The slot is free, and what it has counted starts at 0. A flow may have another slot besides, of which the packets
    /// take either while both are in force.
    ///
    /// # Errors
    /// EINVAL: no such slot or protocol, generation 0, addresses of different families, or what makes no sense together.
    /// ENOSPC: the index has no room for the flow; other flows may find some.
    pub fn install(&self, slot: u32, generation: u64, key: &FastKey, action: &FastAction) -> Result<(), i32> {
        let place = self.slot(slot).ok_or(libc::EINVAL)?;
        let raw = fast_raw::key(key).ok_or(libc::EINVAL)?;
        let words = fast_raw::action(key, action).ok_or(libc::EINVAL)?;
        place.write(stamp(generation, key.granularity).ok_or(libc::EINVAL)?, &raw, &words);
        if !self.index.put(&raw, slot) {
            self.revoke(slot);
            return Err(libc::ENOSPC);
        }
        Ok(())
    }

    /// Has the packets of a slot's flow go to the socket, from now on. One that is on its way at this moment is still counted.
    pub fn revoke(&self, slot: u32) {
        if let Some(place) = self.slot(slot) {
            place.stamp.store(0, Ordering::Release);
        }
    }

    /// Has a flow lead to a slot no more, before the slot gets another one; until then it takes the room of one. A flow that
    /// does not lead there is fine.
    pub fn forget(&self, key: &FastKey, slot: u32) {
        if let Some(raw) = fast_raw::key(key) {
            self.index.take(&raw, slot);
        }
    }

    /// What has been counted in a slot since something was installed in it.
    pub fn tally(&self, slot: u32) -> FastFlowStats {
        self.slot(slot).map(Slot::tally).unwrap_or_default()
    }
}

impl Port {
    /// What the AF_XDP ports of the process have together for flows that the kernel sends on. None for ports of other kinds, and
    /// where the kernel refuses ([`Port::fast_path_error`]).
    pub fn fast_path(&self) -> Option<&Arc<FastPath>> {
        Some(&self.shared.xdp.as_ref()?.fast().ok()?.path)
    }

    /// The port's number there.
    pub fn fast_port(&self) -> Option<FastPort> {
        Some(self.shared.xdp.as_ref()?.fast().ok()?.port)
    }

    /// Why an AF_XDP port is not on the fast path; None: it is, or is of another kind.
    pub fn fast_path_error(&self) -> Option<String> {
        let (step, errno) = self.shared.xdp.as_ref()?.fast().err()?;
        Some(format!("cannot {step}: {}", strerror(errno)))
    }

    /// Whether the interface takes frames that the kernel redirects to it; what it does not take is lost without a trace. Of a veth
    /// pair, an end takes them while the other one has GRO or a program. Asks the kernel, since that can change at any time.
    pub fn can_receive_redirects(&self) -> bool {
        let Some(device) = self.fast_port().and_then(|_| self.net_dev()) else { return false };
        device.up && device.running && netdev_xdp::can_receive_redirects(device.index)
    }
}

/// A port's place on the fast path; when it is dropped, nothing is redirected to the port any more.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) path: Arc<FastPath>,
    pub(crate) port: FastPort,
}

impl Member {
    /// Gives the interface with that index, in the network namespace of the calling thread, a number.
    pub(crate) fn join(if_index: u32) -> Result<Member, Refusal> {
        let step = "join the fast path";
        let path = FastPath::shared()?;
        let last = LAST_PORT
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1))
            .map_err(|_| (step, libc::EOVERFLOW))?;
        let port = last + 1;
        // SAFETY: the key and the value of this map.
        unsafe { put(path.ports.as_raw_fd(), &port.to_ne_bytes(), &if_index.to_ne_bytes()) }
            .map_err(|errno| (step, errno))?;
        Ok(Member { path, port: FastPort(port) })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Fails when the interface is gone, and its entry with it.
        // SAFETY: the key of this map.
        let _ = unsafe { delete(self.path.ports.as_raw_fd(), &self.port.0.to_ne_bytes()) };
    }
}

/// One slot, as `struct fast_slot` has it.
#[derive(Debug)]
#[repr(C)]
struct Slot {
    key: [AtomicU32; size_of::<Key>() / 4],
    version: AtomicU32,
    stamp: AtomicU64,
    rest: [AtomicU32; size_of::<Action>() / 4 - fast_raw::STAMP_WORDS],
    unused: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    last: AtomicU64,
    seen: AtomicU32,
    end: AtomicU32,
    ack: AtomicU32,
    window: AtomicU32,
    fin: AtomicU32,
    rst: AtomicU32,
    unused2: [AtomicU64; 2],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Slot>() == size_of::<sys::fast_slot>());
    assert!(offset_of!(Slot, key) == offset_of!(sys::fast_slot, key));
    assert!(offset_of!(Slot, version) == offset_of!(sys::fast_slot, version));
    assert!(offset_of!(Slot, stamp) == offset_of!(sys::fast_slot, action));
    assert!(offset_of!(sys::fast_action, stamp) == 0);
    assert!(offset_of!(sys::fast_action, out) == fast_raw::STAMP_WORDS * 4);
    assert!(offset_of!(Slot, unused) == offset_of!(sys::fast_slot, unused));
    assert!(offset_of!(Slot, packets) == offset_of!(sys::fast_slot, packets));
    assert!(offset_of!(Slot, packets) == 128);
    assert!(offset_of!(Slot, last) == offset_of!(sys::fast_slot, last));
    assert!(offset_of!(Slot, seen) == offset_of!(sys::fast_slot, seen));
    assert!(offset_of!(Slot, window) == offset_of!(sys::fast_slot, window));
    assert!(offset_of!(Slot, fin) == offset_of!(sys::fast_slot, fin));
    assert!(offset_of!(Slot, rst) == offset_of!(sys::fast_slot, rst));
};

impl Slot {
    /// Writes a flow and its action, and forgets what was counted. The program takes nothing from a slot whose version is odd,
    /// or has become another one under its eyes.
    fn write(&self, stamp: u64, key: &Key, action: &Action) {
        let version = self.version.load(Ordering::Relaxed) & !1;
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.stamp.store(stamp, Ordering::Relaxed);
        let words = key.iter().chain(&action[fast_raw::STAMP_WORDS..]);
        for (to, word) in self.key.iter().chain(&self.rest).zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
        for count in [&self.packets, &self.bytes, &self.last] {
            count.store(0, Ordering::Relaxed);
        }
        for seen in [&self.seen, &self.fin, &self.rst] {
            seen.store(0, Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    fn tally(&self) -> FastFlowStats {
        // The program writes these after the rest.
        let bit = |ended: &AtomicU32, bit| if ended.load(Ordering::Acquire) != 0 { bit } else { 0 };
        let ended = bit(&self.fin, FAST_FIN) | bit(&self.rst, FAST_RST);
        let tcp = (self.seen.load(Ordering::Relaxed) != 0).then(|| FastTcpState {
            end: self.end.load(Ordering::Relaxed),
            ack: self.ack.load(Ordering::Relaxed),
            window: self.window.load(Ordering::Relaxed) as u16,
        });
        FastFlowStats {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            last: self.last.load(Ordering::Relaxed),
            ended,
            tcp,
        }
    }
}

#[cfg(test)]
#[path = "fast_test.rs"]
pub(crate) mod tests;
