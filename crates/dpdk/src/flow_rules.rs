//! Rules that a port applies by itself, before software sees a packet (`rte_flow`).
//!
//! # Theory of operation
//! A [`FlowRule`] says of a packet's headers what they have to be, and what the port does then: write a mark beside the packet
//! ([`crate::Packet::mark`]), count it, drop it. What a port can do nobody knows but its driver, so it is asked
//! about the very rule ([`Port::validate_flow`]). A rule that was made ([`Port::create_flow`]) is there until its
//! [`FlowHandle`] is dropped, and the handle keeps the port open: no rule outlives its port, and no port is closed under
//! a rule.
//!
//! A mark does not say what becomes of the packet, and drivers differ in what they want said. [`FlowFate::Passthru`] is tried as
//! "no change", then as "spread over all queues", then, on a port with one queue, as "to that queue".

use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use mmb_dpdk_sys as sys;

use crate::error::{last_errno, strerror};
use crate::log;
use crate::port::{Port, Shared};

/// Addresses that a rule is about: those that agree with the first one in so many bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowAddresses {
    /// IPv4: source and destination.
    V4([(Ipv4Addr, u8); 2]),
    /// IPv6.
    V6([(Ipv6Addr, u8); 2]),
}

/// A transport with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowProto {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What a rule asks of a packet: an Ethernet frame without tags that carries this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowPattern {
    /// Addresses.
    pub addresses: FlowAddresses,
    /// Transport protocol.
    pub proto: FlowProto,
    /// Source and destination port: a value, and the bits of it that count (0: any port).
    pub ports: [(u16, u16); 2],
}

/// What becomes of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowFate {
    /// What would have become of it.
    Passthru,
    /// The port drops it.
    Drop,
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRule {
    /// Which packets.
    pub pattern: FlowPattern,
    /// A number that they carry from then on; drivers of today have room for 24 bits.
    pub mark: Option<u32>,
    /// Whether the port counts them.
    pub counts: bool,
    /// Of several rules that match the one with the lowest number applies.
    pub priority: u32,
    /// What becomes of them.
    pub fate: FlowFate,
}

/// What a driver has against a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port {port}: {call} says: {reason} (error {errno}, about {about})")]
pub struct FlowError {
    /// The port's name.
    pub port: String,
    /// DPDK's function.
    pub call: &'static str,
    /// Error number (positive): `ENOSYS` if the driver has no rules at all, `ENOTSUP` if it has others.
    pub errno: i32,
    /// What it is about, in DPDK's terms (`enum rte_flow_error_type`).
    pub about: &'static str,
    /// The driver's message, or the error number in words.
    pub reason: String,
}

/// What `enum rte_flow_error_type` counts.
const ABOUT: [&str; 18] = [
    "nothing",
    "no certain part",
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

/// One call at a time: drivers differ in what they allow.
static RULES: Mutex<()> = Mutex::new(());

impl FlowRule {
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
    /// Whether the port could apply a rule now.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn validate_flow(&self, rule: &FlowRule) -> Result<(), FlowError> {
        self.suitable(rule).map(|_| ())
    }

    /// Has the port apply a rule, until the handle is dropped.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn create_flow(&self, rule: &FlowRule) -> Result<FlowHandle, FlowError> {
        let raw = self.suitable(rule)?;
        let mut told = sys::mmb_flow_error::default();
        let (flow, logged) = quietly(|| {
            // SAFETY: the port is open; both pointers are to live structures.
            unsafe { sys::mmb_flow_create(self.shared.id, &raw, &mut told) }
        });
        match NonNull::new(flow) {
            Some(flow) => {
                Ok(FlowHandle { flow, counts: rule.counts, gone: false, port: Arc::clone(&self.shared) })
            }
            None => Err(refused(&self.shared, "rte_flow_create", last_errno(), &told, logged)),
        }
    }

    /// A rule in the form that the driver takes.
    fn suitable(&self, rule: &FlowRule) -> Result<sys::mmb_flow_rule, FlowError> {
        let queues = self.shared.info.rx_queues;
        let ways: &[u32] = match rule.fate {
            FlowFate::Drop => &[sys::MMB_FLOW_DROP],
            FlowFate::Passthru if queues == 1 => {
                &[sys::MMB_FLOW_PASSTHRU, sys::MMB_FLOW_RSS, sys::MMB_FLOW_QUEUE]
            }
            FlowFate::Passthru => &[sys::MMB_FLOW_PASSTHRU, sys::MMB_FLOW_RSS],
        };
        let mut first = None;
        for &fate in ways {
            let raw = rule.raw(fate, queues);
            let mut told = sys::mmb_flow_error::default();
            let (status, logged) = quietly(|| {
                // SAFETY: the port is open; both pointers are to live structures.
                unsafe { sys::mmb_flow_validate(self.shared.id, &raw, &mut told) }
            });
            if status == 0 {
                return Ok(raw);
            }
            first.get_or_insert_with(|| refused(&self.shared, "rte_flow_validate", status, &told, logged));
        }
        // The answer to the simplest form says most.
        Err(first.unwrap_or_else(|| {
            refused(&self.shared, "rte_flow_validate", libc::ENOTSUP, &Default::default(), None)
        }))
    }
}

/// A rule that a port applies; the port stops when this is dropped.
#[derive(Debug)]
pub struct FlowHandle {
    flow: NonNull<sys::rte_flow>,
    counts: bool,
    gone: bool,
    port: Arc<Shared>,
}

// SAFETY: the rule is reached by calls that are made one at a time, from whatever thread.
unsafe impl Send for FlowHandle {}
// SAFETY: as above.
unsafe impl Sync for FlowHandle {}

impl FlowHandle {
    /// Packets that the rule has matched; none if it was made not to count them.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn packets(&self) -> Result<Option<u64>, FlowError> {
        if !self.counts {
            return Ok(None);
        }
        let (mut packets, mut told) = (0, sys::mmb_flow_error::default());
        let (status, logged) = quietly(|| {
            // SAFETY: port and rule live as long as this; the pointers are to live integers and structures.
            unsafe { sys::mmb_flow_count(self.port.id, self.flow.as_ptr(), &mut packets, &mut told) }
        });
        match status {
            0 => Ok(Some(packets)),
            _ => Err(refused(&self.port, "rte_flow_query", status, &told, logged)),
        }
    }

    /// As dropping it, and says whether the port has really stopped.
    ///
    /// # Errors
    /// The driver's answer; the rule may be there until the port is closed.
    pub fn destroy(mut self) -> Result<(), FlowError> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), FlowError> {
        if std::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        let mut told = sys::mmb_flow_error::default();
        let (status, logged) = quietly(|| {
            // SAFETY: the port is open, the rule is there, and nobody uses it afterwards.
            unsafe { sys::mmb_flow_destroy(self.port.id, self.flow.as_ptr(), &mut told) }
        });
        match status {
            0 => Ok(()),
            _ => Err(refused(&self.port, "rte_flow_destroy", status, &told, logged)),
        }
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        // What cannot be taken away goes with the port.
        let _ = self.take_away();
    }
}

/// One call of rte_flow's, the driver's messages kept back.
fn quietly<T>(call: impl FnOnce() -> T) -> (T, Option<String>) {
    let _alone = RULES.lock().unwrap_or_else(PoisonError::into_inner);
    log::capture(call)
}

fn refused(
    port: &Shared,
    call: &'static str,
    status: i32,
    told: &sys::mmb_flow_error,
    logged: Option<String>,
) -> FlowError {
    let errno = status.saturating_abs();
    // SAFETY: the shim ends the message with a zero.
    let message = unsafe { CStr::from_ptr(told.message.as_ptr()) }.to_string_lossy().into_owned();
    let words = Some(message).filter(|message| !message.is_empty()).or(logged);
    FlowError {
        port: port.info.name.clone(),
        call,
        errno,
        about: usize::try_from(told.type_).ok().and_then(|at| ABOUT.get(at)).unwrap_or(&"something"),
        reason: words.unwrap_or_else(|| strerror(errno)),
    }
}

/// Has a port that is not configured yet deliver marks beside its packets. Drivers that need not be asked say so, and those that
/// do not deliver any show it when they are asked about a rule.
pub(crate) fn ask_for_marks(id: u16) {
    // SAFETY: the port is open and not configured.
    let _ = log::capture(|| unsafe { sys::mmb_flow_ask_for_marks(id) });
}
