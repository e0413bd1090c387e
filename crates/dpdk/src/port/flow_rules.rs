//! Hardware flow rules (`rte_flow`): rules that a port applies before software sees a packet.
//!
//! # Theory of operation
//! A [`FlowRule`] consists of a pattern of header fields and of actions: mark the packet
//! ([`crate::Packet::mark`]), count it, drop it. Only the driver knows which rules a port supports, so it is
//! asked about each rule ([`Port::validate_flow`]). A created rule ([`Port::create_flow`]) exists until its
//! [`FlowHandle`] is dropped. The handle keeps the port open, so that no rule outlives its port.
//!
//! A mark alone does not decide where the packet goes, and drivers differ in the fate action that they
//! require. [`FlowFate::Passthru`] is tried as PASSTHRU, then as RSS over all queues, then, on a port with
//! one queue, as QUEUE.

use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use mmb_dpdk_sys as sys;

use super::ethdev::Port;
use super::handle::DeviceHandle;
use crate::error::{last_errno, strerror};
use crate::log;

/// Addresses of a pattern, each with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowAddresses {
    /// IPv4: source and destination.
    V4([(Ipv4Addr, u8); 2]),
    /// IPv6: source and destination.
    V6([(Ipv6Addr, u8); 2]),
}

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowProto {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The packets that a rule matches: untagged Ethernet frames with these headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowPattern {
    /// Addresses.
    pub addresses: FlowAddresses,
    /// Transport protocol.
    pub proto: FlowProto,
    /// Source and destination port: value and mask (mask 0: any port).
    pub ports: [(u16, u16); 2],
}

/// The fate of a matching packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowFate {
    /// The packet is received as without the rule.
    Passthru,
    /// The port drops it.
    Drop,
}

/// A flow rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRule {
    /// The packets that the rule matches.
    pub pattern: FlowPattern,
    /// The mark that they get; drivers have room for 24 bits.
    pub mark: Option<u32>,
    /// Whether the port counts them.
    pub counts: bool,
    /// Among matching rules, the one with the lowest number applies.
    pub priority: u32,
    /// What happens to them.
    pub fate: FlowFate,
}

/// A flow rule operation that the driver refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port {port}: {call} failed: {reason} (error {errno}, caused by {cause})")]
pub struct FlowError {
    /// The port's name.
    pub port: String,
    /// DPDK's function.
    pub call: &'static str,
    /// Error number (positive): `ENOSYS` if the driver supports no rules, `ENOTSUP` if it does not support
    /// this one.
    pub errno: i32,
    /// The part of the rule that caused it (`enum rte_flow_error_type`).
    pub cause: &'static str,
    /// The driver's message, or the error number in words.
    pub reason: String,
}

/// The values of `enum rte_flow_error_type`.
const CAUSES: [&str; 18] = [
    "nothing",
    "an unspecified part",
    "the rule",
    "the group",
    "the priority",
    "ingress",
    "egress",
    "transfer",
    "the attributes",
    "the number of items",
    "an item's value",
    "an item's range",
    "an item's mask",
    "an item",
    "the number of actions",
    "an action's parameters",
    "an action",
    "the port's state",
];

/// The cause "an unspecified part".
const UNSPECIFIED: i32 = 1;

/// Serializes all calls: not every driver is thread-safe.
static CALLS: Mutex<()> = Mutex::new(());

impl FlowRule {
    /// The rule in the shim's format.
    fn raw(&self, fate: u32, queues: u16) -> sys::mmb_flow_rule {
        let FlowPattern { addresses, proto, ports } = self.pattern;
        let mut raw = sys::mmb_flow_rule {
            proto: match proto {
                FlowProto::Tcp => 6,
                FlowProto::Udp => 17,
            },
            marks: self.mark.is_some().into(),
            counts: self.counts.into(),
            mark: self.mark.unwrap_or(0),
            priority: self.priority,
            fate,
            queues: queues.into(),
            ..Default::default()
        };
        let mut put = |at: usize, address: &[u8], bits: u8| {
            let (value, mask) = match at {
                0 => (&mut raw.value.source, &mut raw.mask.source),
                _ => (&mut raw.value.destination, &mut raw.mask.destination),
            };
            for (place, byte) in address.iter().enumerate() {
                let left = usize::from(bits).saturating_sub(place * 8).min(8);
                mask[place] = !(0xff_u16 >> left) as u8;
                value[place] = byte & mask[place];
            }
        };
        match addresses {
            FlowAddresses::V4(both) => {
                both.iter().enumerate().for_each(|(at, (address, bits))| put(at, &address.octets(), *bits));
                raw.ip = 4;
            }
            FlowAddresses::V6(both) => {
                both.iter().enumerate().for_each(|(at, (address, bits))| put(at, &address.octets(), *bits));
                raw.ip = 6;
            }
        }
        let [source, destination] = ports.map(|(port, mask)| ((port & mask).to_be(), mask.to_be()));
        (raw.value.source_port, raw.mask.source_port) = source;
        (raw.value.destination_port, raw.mask.destination_port) = destination;
        raw
    }
}

impl Port {
    /// Checks whether the driver supports a rule in the port's current state.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn validate_flow(&self, rule: &FlowRule) -> Result<(), FlowError> {
        self.find_supported(rule).map(|_| ())
    }

    /// Creates a rule, which exists until the handle is dropped.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn create_flow(&self, rule: &FlowRule) -> Result<FlowHandle, FlowError> {
        let (id, raw) = self.find_supported(rule)?;
        let mut error = sys::mmb_flow_error::default();
        let (flow, logged) = serialized(|| {
            // SAFETY: the port is open; both pointers are to live structures.
            unsafe { sys::mmb_flow_create(id, &raw, &mut error) }
        });
        match NonNull::new(flow) {
            Some(flow) => Ok(FlowHandle {
                flow,
                id,
                counts: rule.counts,
                is_destroyed: false,
                port: Arc::clone(&self.handle),
            }),
            None => Err(refused(&self.handle, "rte_flow_create", last_errno(), &error, logged)),
        }
    }

    /// The first form of a rule that the driver supports, and DPDK's number of the port.
    fn find_supported(&self, rule: &FlowRule) -> Result<(u16, sys::mmb_flow_rule), FlowError> {
        let refused_by = |status, error: &sys::mmb_flow_error, logged| {
            refused(&self.handle, "rte_flow_validate", status, error, logged)
        };
        let Some(id) = self.handle.eth_id() else {
            let unspecified = sys::mmb_flow_error { type_: UNSPECIFIED, ..Default::default() };
            return Err(refused_by(libc::ENOSYS, &unspecified, None));
        };
        let queues = self.handle.info.rx_queues;
        let fates: &[u32] = match rule.fate {
            FlowFate::Drop => &[sys::MMB_FLOW_DROP],
            FlowFate::Passthru if queues == 1 => {
                &[sys::MMB_FLOW_PASSTHRU, sys::MMB_FLOW_RSS, sys::MMB_FLOW_QUEUE]
            }
            FlowFate::Passthru => &[sys::MMB_FLOW_PASSTHRU, sys::MMB_FLOW_RSS],
        };
        let mut first = None;
        for &fate in fates {
            let raw = rule.raw(fate, queues);
            let mut error = sys::mmb_flow_error::default();
            let (status, logged) = serialized(|| {
                // SAFETY: the port is open; both pointers are to live structures.
                unsafe { sys::mmb_flow_validate(id, &raw, &mut error) }
            });
            if status == 0 {
                return Ok((id, raw));
            }
            first.get_or_insert_with(|| refused_by(status, &error, logged));
        }
        // The refusal of the simplest form is the most informative.
        Err(first.unwrap_or_else(|| refused_by(libc::ENOTSUP, &Default::default(), None)))
    }
}

/// A created rule; dropping the handle destroys it.
#[derive(Debug)]
pub struct FlowHandle {
    flow: NonNull<sys::rte_flow>,
    /// DPDK's number of the port.
    id: u16,
    counts: bool,
    is_destroyed: bool,
    port: Arc<DeviceHandle>,
}

// SAFETY: all calls that use the rule are serialized and may come from any thread.
unsafe impl Send for FlowHandle {}
// SAFETY: as above.
unsafe impl Sync for FlowHandle {}

impl FlowHandle {
    /// Number of packets that the rule has matched; None: it does not count.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn packets(&self) -> Result<Option<u64>, FlowError> {
        if !self.counts {
            return Ok(None);
        }
        let (mut packets, mut error) = (0, sys::mmb_flow_error::default());
        let (status, logged) = serialized(|| {
            // SAFETY: port and rule live as long as `self`; the pointers are to live values.
            unsafe { sys::mmb_flow_count(self.id, self.flow.as_ptr(), &mut packets, &mut error) }
        });
        match status {
            0 => Ok(Some(packets)),
            _ => Err(refused(&self.port, "rte_flow_query", status, &error, logged)),
        }
    }

    /// Destroys the rule and reports whether that worked.
    ///
    /// # Errors
    /// The driver's refusal; the rule may exist until the port is closed.
    pub fn destroy(mut self) -> Result<(), FlowError> {
        self.destroy_once()
    }

    fn destroy_once(&mut self) -> Result<(), FlowError> {
        if std::mem::replace(&mut self.is_destroyed, true) {
            return Ok(());
        }
        let mut error = sys::mmb_flow_error::default();
        let (status, logged) = serialized(|| {
            // SAFETY: the port is open, the rule exists, and it is not used afterwards.
            unsafe { sys::mmb_flow_destroy(self.id, self.flow.as_ptr(), &mut error) }
        });
        match status {
            0 => Ok(()),
            _ => Err(refused(&self.port, "rte_flow_destroy", status, &error, logged)),
        }
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        // A rule that cannot be destroyed ends with the port.
        let _ = self.destroy_once();
    }
}

/// Makes one rte_flow call and captures the driver's messages.
fn serialized<T>(call: impl FnOnce() -> T) -> (T, Option<String>) {
    let _guard = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    log::capture(call)
}

/// The error of a call, with the most specific message there is.
fn refused(
    port: &DeviceHandle,
    call: &'static str,
    status: i32,
    error: &sys::mmb_flow_error,
    logged: Option<String>,
) -> FlowError {
    let errno = status.saturating_abs();
    // SAFETY: the shim terminates the message with a zero.
    let message = unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_string_lossy().into_owned();
    let words = Some(message).filter(|message| !message.is_empty()).or(logged);
    FlowError {
        port: port.info.name.clone(),
        call,
        errno,
        cause: usize::try_from(error.type_).ok().and_then(|at| CAUSES.get(at)).unwrap_or(&"something"),
        reason: words.unwrap_or_else(|| strerror(errno)),
    }
}
