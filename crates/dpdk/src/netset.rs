//! What is set on a kernel interface for as long as a port reads raw frames from it.
//!
//! # Theory of operation
//! A packet socket sees what the kernel's receive path made of the frames: merged ones after GRO or LRO, and from a
//! veth peer segments of up to 64 KiB that its TSO never cut. Both are longer than the MTU they meet on the other side.
//! So GRO and LRO are switched off, and put back when the [`FrameSizeGuard`] is dropped; and a veth interface gets an XDP
//! program that passes everything, since the kernel does not hand segments to be cut to an interface with XDP. The
//! program hangs on a BPF link, which ends with the process however that ends.
//!
//! The kernel also takes the outer VLAN tag out of a frame before a packet socket sees it, and DPDK's driver forgets
//! whether that was an ordinary tag or a service tag. So the program writes [`SERVICE_TAG_PLACEHOLDER`] for a service tag's
//! ethertype, which the kernel leaves alone, and whoever reads the frames writes it back.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::netdev::{Asking, NetDev};

// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETH_FLAG_LRO: u32 = 1 << 15;

/// Keeps frames no longer than the MTU; dropping it puts the interface back.
#[derive(Debug)]
pub struct FrameSizeGuard {
    interface: String,
    gro: bool,
    lro: bool,
    xdp: Option<OwnedFd>,
    notes: Vec<String>,
}

impl FrameSizeGuard {
    /// Sets the interface so that no merged or uncut frame arrives. What could not be set is a note.
    ///
    /// # Errors
    /// When the kernel does not answer, or has no such interface.
    pub fn apply(interface: &str) -> io::Result<FrameSizeGuard> {
        let device = NetDev::lookup(interface)?.ok_or(io::ErrorKind::NotFound)?;
        let mut kept = FrameSizeGuard {
            interface: interface.to_owned(),
            gro: false,
            lro: false,
            xdp: None,
            notes: Vec::new(),
        };
        if is_veth(interface) {
            match attach_xdp_pass(device.index) {
                Ok(link) => kept.xdp = Some(link),
                Err(e) => kept.notes.push(format!(
                    "segmentation offload of its peer could not be switched off ({e}); run `ethtool -K PEER tso off gso \
                     off` there, or frames longer than the MTU are dropped as gso-frame"
                )),
            }
        }
        kept.gro = device.offloads.gro && kept.switch("gro", ETHTOOL_SGRO, 0);
        kept.lro = device.offloads.lro && lro(interface, false).is_some_and(|()| kept.noted_off("lro"));
        Ok(kept)
    }

    /// Whether frames come with [`SERVICE_TAG_PLACEHOLDER`] for service tags.
    pub fn replaces_service_tags(&self) -> bool {
        self.xdp.is_some()
    }

    /// What was done to the interface, or has to be done by hand, in sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn switch(&mut self, word: &str, command: u32, value: u32) -> bool {
        if set(&self.interface, command, value).is_some() {
            return self.noted_off(word);
        }
        self.notes.push(format!(
            "{word} could not be switched off; run `ethtool -K {} {word} off`, or merged frames are dropped as gso-frame",
            self.interface
        ));
        false
    }

    fn noted_off(&mut self, word: &str) -> bool {
        self.notes.push(format!("{word} is off while mmb runs"));
        true
    }
}

impl Drop for FrameSizeGuard {
    fn drop(&mut self) {
        // The interface may be gone by now; then there is nothing to put back.
        if self.gro {
            set(&self.interface, ETHTOOL_SGRO, 1);
        }
        if self.lro {
            lro(&self.interface, true);
        }
    }
}

fn set(interface: &str, command: u32, value: u32) -> Option<()> {
    Asking::new(interface).ok()??.ethtool(&mut [command, value])
}

fn lro(interface: &str, on: bool) -> Option<()> {
    let mut asking = Asking::new(interface).ok()??;
    let mut flags = [ETHTOOL_GFLAGS, 0];
    asking.ethtool(&mut flags)?;
    let value = if on { flags[1] | ETH_FLAG_LRO } else { flags[1] & !ETH_FLAG_LRO };
    asking.ethtool(&mut [ETHTOOL_SFLAGS, value])
}

/// Whether the interface is one end of a pair whose other end is a kernel interface too.
pub fn is_veth(interface: &str) -> bool {
    driver(interface).as_deref() == Some("veth")
}

/// The name of the interface's kernel driver (`veth`, `ixgbe`, `tun`, …).
fn driver(interface: &str) -> Option<String> {
    // struct ethtool_drvinfo: command, driver name (32 bytes), and more, 196 bytes in all.
    let mut info = [0u32; 49];
    info[0] = ETHTOOL_GDRVINFO;
    Asking::new(interface).ok()??.ethtool(&mut info)?;
    let name: Vec<u8> =
        info[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|&b| b != 0).collect();
    String::from_utf8(name).ok()
}

/// Attaches an XDP program that passes every frame, for as long as the result is open.
fn attach_xdp_pass(index: u32) -> io::Result<OwnedFd> {
    /// `union bpf_attr` of `BPF_LINK_CREATE`.
    #[repr(C)]
    struct LinkCreate {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
        rest: [u64; 14],
    }
    const BPF_LINK_CREATE: i32 = 28;
    const BPF_XDP: u32 = 37;
    let program = load_xdp_pass()?;
    let prog_fd = program.as_raw_fd().cast_unsigned();
    bpf(
        BPF_LINK_CREATE,
        &LinkCreate { prog_fd, target_ifindex: index, attach_type: BPF_XDP, flags: 0, rest: [0; 14] },
    )
}

/// The ethertype of a service tag (IEEE 802.1ad).
pub const SERVICE_TAG: [u8; 2] = [0x88, 0xa8];
/// What stands for it in frames that an interface with an XDP program of [`FrameSizeGuard`] receives: the one ethertype
/// that is reserved and never on a wire (IANA's registry, after RFC 1701).
pub const SERVICE_TAG_PLACEHOLDER: [u8; 2] = [0xff, 0xff];

/// One BPF instruction.
fn instruction(opcode: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> u64 {
    let [o0, o1] = offset.to_ne_bytes();
    let [i0, i1, i2, i3] = immediate.to_ne_bytes();
    let registers = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
    u64::from_ne_bytes([opcode, registers, o0, o1, i0, i1, i2, i3])
}

/// Loads the program that passes every frame, service tags disguised; for frames in any number of pieces where the kernel
/// knows such programs (5.18), since a jumbo MTU needs that.
fn load_xdp_pass() -> io::Result<OwnedFd> {
    /// `union bpf_attr` of `BPF_PROG_LOAD`.
    #[repr(C)]
    struct ProgLoad {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log: [u64; 2],
        kern_version: u32,
        prog_flags: u32,
        rest: [u64; 12],
    }
    const BPF_PROG_LOAD: i32 = 5;
    const BPF_PROG_TYPE_XDP: u32 = 6;
    const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
    let service_tag = i32::from(u16::from_ne_bytes(SERVICE_TAG));
    let stand_in = i32::from(u16::from_ne_bytes(SERVICE_TAG_PLACEHOLDER));
    let instructions = [
        instruction(0x61, 2, 1, 0, 0),           // r2 = context.data
        instruction(0x61, 3, 1, 4, 0),           // r3 = context.data_end
        instruction(0xbf, 4, 2, 0, 0),           // r4 = r2
        instruction(0x07, 4, 0, 0, 14),          // r4 += 14
        instruction(0x2d, 4, 3, 3, 0),           // if r4 > r3 skip 3
        instruction(0x69, 5, 2, 12, 0),          // r5 = ethertype
        instruction(0x55, 5, 0, 1, service_tag), // if r5 != service tag skip 1
        instruction(0x6a, 2, 0, 12, stand_in),   // ethertype = stand-in
        instruction(0xb7, 0, 0, 0, 2),           // r0 = XDP_PASS
        instruction(0x95, 0, 0, 0, 0),           // exit
    ];
    let load = |prog_flags| {
        let attr = ProgLoad {
            prog_type: BPF_PROG_TYPE_XDP,
            insn_cnt: instructions.len() as u32,
            insns: instructions.as_ptr() as u64,
            license: c"Apache-2.0".as_ptr() as u64,
            log: [0; 2],
            kern_version: 0,
            prog_flags,
            rest: [0; 12],
        };
        bpf(BPF_PROG_LOAD, &attr)
    };
    load(BPF_F_XDP_HAS_FRAGS).or_else(|_| load(0))
}

/// A bpf(2) call that makes a descriptor. `attr` is the command's attribute structure; what it points to outlives the call.
fn bpf<T>(command: i32, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: pointer and size describe `attr`; the kernel only reads it and what it points to. A non-negative result
    // is a new descriptor that nobody else owns.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, command, &raw const *attr, size_of::<T>());
        match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
