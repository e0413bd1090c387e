//! Raw bindings to DPDK 22.11, and the C shim for what bindings cannot reach. Use `mmb-dpdk` instead.
//!
//! # What is bound
//! The functions, types and constants that `mmb-dpdk` uses, generated from the installed headers (Debian 12's
//! `libdpdk-dev`); their layouts are asserted at compile time. Names starting with `mmb_` are the shim's:
//! * `shim/shim.c`: DPDK's inline functions;
//! * `shim/constructors.c`: DPDK's constructors, run when DPDK starts;
//! * `shim/libraries.c`: the shared libraries that drivers need, loaded when DPDK starts;
//! * `shim/log.c`: the messages of DPDK, libbpf and libxdp in one sink;
//! * `shim/xsk.c`: releases what DPDK 22.11's AF_XDP driver leaks when it closes a port; keeps it from
//!   loading a program;
//! * `shim/packet.c`: keeps the AF_PACKET driver from receiving, which ports do themselves, and from waiting;
//! * `shim/flow.c`: hardware flow rules (`rte_flow`).
//!
//! # How it is linked
//! DPDK and a choice of its drivers are linked statically. Linked dynamically, DPDK loads every driver
//! plug-in that is installed (a hundred and more, for buses and accelerators that have no place here) at
//! every start: on a small virtual machine a program started in 165 to 320 ms with 25 MB resident;
//! statically in 112 to 144 ms with 7.5 MB, of which 100 ms are EAL's measurement of the time-stamp
//! counter. A static program also runs where DPDK is not installed. Network cards: Intel (e1000, igc,
//! ixgbe, i40e, ice, iavf), virtio, vmxnet3 and ena; cards that need a vendor's library (mlx5 and its kind)
//! are left out.
//!
//! Most processes are clients, which do not start DPDK. So libxdp, libbpf, libpcap, libnuma and libbsd are
//! loaded, and DPDK's constructors run, when DPDK starts. Before, a client needed 3.6 ms for its start and
//! its end; now 1.7 ms.
#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, non_snake_case)]
#![allow(unsafe_op_in_unsafe_fn, clippy::all, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// The XDP program of AF_XDP ports (bpf/steer.c), compiled: an ELF object for libbpf.
pub static STEER: &[u8] = &ALIGNED.bytes;

/// The variant of [`STEER`] with the fast path (bpf/fast_xdp.h).
pub static STEER_FAST: &[u8] = &ALIGNED_FAST.bytes;

/// The programs of AF_PACKET ports with the fast path (bpf/tc.c), compiled.
pub static TC: &[u8] = &ALIGNED_TC.bytes;

/// The program of routed AF_PACKET ports (bpf/discard.c), compiled.
pub static DISCARD: &[u8] = &ALIGNED_DISCARD.bytes;

/// The socket lookup of transparent brokers (bpf/broker.c), compiled.
pub static BROKER: &[u8] = &ALIGNED_BROKER.bytes;

/// Aligns an ELF object for libelf, which reads its words in place.
#[repr(C, align(8))]
struct Aligned<T: ?Sized> {
    bytes: T,
}

static ALIGNED: &Aligned<[u8]> = &Aligned { bytes: *include_bytes!(concat!(env!("OUT_DIR"), "/steer.o")) };
static ALIGNED_FAST: &Aligned<[u8]> =
    &Aligned { bytes: *include_bytes!(concat!(env!("OUT_DIR"), "/steer_fast.o")) };
static ALIGNED_TC: &Aligned<[u8]> = &Aligned { bytes: *include_bytes!(concat!(env!("OUT_DIR"), "/tc.o")) };
static ALIGNED_DISCARD: &Aligned<[u8]> =
    &Aligned { bytes: *include_bytes!(concat!(env!("OUT_DIR"), "/discard.o")) };
static ALIGNED_BROKER: &Aligned<[u8]> =
    &Aligned { bytes: *include_bytes!(concat!(env!("OUT_DIR"), "/broker.o")) };
