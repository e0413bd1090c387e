//! Generated traffic. Flows are computed and not stored, so that making a packet touches no further memory.
//!
//! Theory of operation. Flow `i` of a seed has addresses and ports from a hash of both. IPv4 flows go from
//! 10.0.0.0/8 to 198.18.0.0/15 (RFC 2544), IPv6 flows from 2001:2:0::/49 to 2001:2:0:8000::/49 (halves of RFC
//! 5180's block), or to destinations of a routing table ([`Prefixes`]). A frame is a template of headers and
//! random payload with the flow's addresses and ports. Its checksums follow from sums that the template
//! holds, so a packet costs a copy and a few additions. TCP segments are acknowledgements or data with a
//! timestamp option, as an established connection sends them; each flow has its own timestamp. If every
//! packet starts a new flow, TCP segments are SYNs. If flows are answered, as functions that read streams
//! need it, the TCP segments of a flow follow each other in order: then the generator stores four bytes for
//! each flow.

use mmb_packet::checksum;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rand_distr::{Distribution, Zipf};
use serde::Serialize;

use super::prefixes::{Prefixes, mix};

/// Transport protocols of generated flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Proto {
    /// TCP segments with a timestamp option.
    Tcp,
    /// UDP datagrams.
    Udp,
    /// TCP and UDP flows in turn.
    Mix,
}

/// The order of the flows' packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Every packet belongs to a random flow, uniformly distributed.
    Uniform,
    /// Flows are distributed by Zipf's law with exponent 1: few flows send most packets.
    Zipf,
    /// Trains of 1 to 32 packets of one flow.
    Burst,
    /// Every packet is the first of a new flow; TCP segments are SYNs.
    Fresh,
}

/// What to generate.
#[derive(Clone, Debug, Serialize)]
pub struct Generated {
    /// Number of flows, at least 1.
    pub flows: u32,
    /// Frame length in bytes without the check sequence; longer if the headers need it.
    pub size: usize,
    /// Transport protocols.
    pub proto: Proto,
    /// Order of the flows.
    pub order: Order,
    /// IPv6 instead of IPv4.
    pub ip6: bool,
    /// The TCP segments of a flow follow each other in order, without end, and the other end acknowledges
    /// every second one. Otherwise all are the same, and nothing is answered.
    pub answered: bool,
    /// If flows are answered: so many further segments of each flow leave before one is acknowledged, on
    /// average.
    pub in_flight: u32,
    /// What each packet's payload begins with, as far as there is room; random bytes follow.
    pub payload: Vec<u8>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Destinations instead of 198.18.0.0/15 or 2001:2:0:8000::/49; its prefixes have the same IP version.
    #[serde(skip)]
    pub destinations: Option<Prefixes>,
}

impl Default for Generated {
    fn default() -> Generated {
        Generated {
            flows: 1000,
            size: 64,
            proto: Proto::Mix,
            order: Order::Uniform,
            ip6: false,
            answered: false,
            in_flight: 0,
            payload: Vec::new(),
            seed: 1,
            destinations: None,
        }
    }
}

/// Maximum length of a generated frame.
pub const MAX_FRAME: usize = 9_018;

const ETHER: usize = 14;
/// Destination Ethernet address of all packets.
pub(super) const NEAR: [u8; 6] = [0x02, 0, 0, 0, 0, 2];
/// TCP flags (RFC 9293, 3.1).
pub(super) const SYN: u8 = 0x02;
pub(super) const ACK: u8 = 0x10;
const ZIPF_DRAWS: usize = 1 << 18;

/// The fields that differ between flows.
#[derive(Clone, Copy)]
struct Tuple {
    source: u128,
    destination: u128,
    source_port: u16,
    destination_port: u16,
    timestamp: u64,
}

/// A frame without addresses and ports, and the constant part of its checksums.
struct Template {
    frame: Vec<u8>,
    l4: usize,
    l4_checksum: usize,
    /// Offset of the timestamp option's value.
    timestamp: Option<usize>,
    /// Sequence number.
    sequence: u32,
    /// Bytes of payload.
    payload: u32,
    /// Sum over the IPv4 header without addresses.
    ip_sum: u32,
    /// Sum over pseudo header, transport header and payload without addresses, ports and timestamp.
    l4_sum: u32,
}

/// Generator of frames; see the module's theory of operation.
pub struct Generator {
    config: Generated,
    templates: [Template; 2],
    rng: SmallRng,
    zipf: Vec<u32>,
    next_zipf: usize,
    train: u32,
    train_flow: u32,
    fresh: u32,
    /// For each flow, the bytes of payload that were sent, if flows are answered.
    sent: Vec<u32>,
}

impl Generator {
    /// A generator of `config`'s traffic. Each worker has its own `stream`.
    pub fn new(config: &Generated, stream: u64) -> Generator {
        let mut rng = SmallRng::seed_from_u64(config.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut payload = vec![0u8; MAX_FRAME];
        rng.fill_bytes(&mut payload);
        let zipf = match config.order {
            Order::Zipf => zipf_draws(config.flows, &mut rng),
            Order::Uniform | Order::Burst | Order::Fresh => Vec::new(),
        };
        let templates = [template(config, 6, &payload), template(config, 17, &payload)];
        // The first segment is that of `Generator::flow`.
        let sent =
            if config.answered { vec![templates[0].payload; config.flows as usize] } else { Vec::new() };
        Generator {
            templates,
            sent,
            config: config.clone(),
            rng,
            zipf,
            next_zipf: 0,
            train: 0,
            train_flow: 0,
            fresh: (stream as u32) << 28,
        }
    }

    /// Maximum length of this generator's frames.
    pub fn frame_len(&self) -> usize {
        self.templates.iter().map(|t| t.frame.len()).max().unwrap_or(0)
    }

    /// The frame of a flow.
    pub fn flow(&self, flow: u32) -> Vec<u8> {
        let mut frame = vec![0; self.frame_len()];
        let len = self.write_flow(flow, &mut frame);
        frame.truncate(len);
        frame
    }

    /// Writes the next frame to the start of `out`, which has at least [`Generator::frame_len`] bytes, and
    /// returns its length.
    pub fn write_next(&mut self, out: &mut [u8]) -> usize {
        let flow = self.next_flow();
        let len = self.write_flow(flow, out);
        self.number_segment(flow, out);
        len
    }

    /// Gives a TCP segment the number behind the segment before it.
    fn number_segment(&mut self, flow: u32, out: &mut [u8]) {
        let Some(sent) = self.sent.get_mut(flow as usize) else { return };
        let t = &self.templates[template_of(self.config.proto, flow)];
        if t.timestamp.is_none() {
            return;
        }
        let (old, new) = (t.sequence.to_be_bytes(), t.sequence.wrapping_add(*sent).to_be_bytes());
        *sent = sent.wrapping_add(t.payload);
        out[t.l4 + 4..t.l4 + 8].copy_from_slice(&new);
        let at = t.l4_checksum;
        let checksum = u16::from_be_bytes([out[at], out[at + 1]]);
        // RFC 1624, equation 3.
        let removed = u32::from(!checksum) + u32::from(!checksum::fold(checksum::sum(&old, 0)));
        let checksum = !checksum::fold(checksum::sum(&new, removed));
        out[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    fn next_flow(&mut self) -> u32 {
        match self.config.order {
            Order::Uniform => self.draw(),
            Order::Zipf => {
                self.next_zipf = (self.next_zipf + 1) % self.zipf.len();
                self.zipf[self.next_zipf]
            }
            Order::Burst => {
                if self.train == 0 {
                    self.train = self.rng.random_range(1..=32);
                    self.train_flow = self.draw();
                }
                self.train -= 1;
                self.train_flow
            }
            Order::Fresh => {
                self.fresh = self.fresh.wrapping_add(1);
                self.fresh
            }
        }
    }

    fn draw(&mut self) -> u32 {
        ((u64::from(self.rng.next_u32()) * u64::from(self.config.flows)) >> 32) as u32
    }

    fn write_flow(&self, flow: u32, out: &mut [u8]) -> usize {
        let t = &self.templates[template_of(self.config.proto, flow)];
        let tuple = tuple(&self.config, flow);
        let len = t.frame.len();
        let out = &mut out[..len];
        out.copy_from_slice(&t.frame);
        let address_sum = if self.config.ip6 {
            out[ETHER + 8..ETHER + 24].copy_from_slice(&tuple.source.to_be_bytes());
            out[ETHER + 24..ETHER + 40].copy_from_slice(&tuple.destination.to_be_bytes());
            checksum::sum(&out[ETHER + 8..ETHER + 40], 0)
        } else {
            out[ETHER + 12..ETHER + 16].copy_from_slice(&(tuple.source as u32).to_be_bytes());
            out[ETHER + 16..ETHER + 20].copy_from_slice(&(tuple.destination as u32).to_be_bytes());
            let sum = checksum::sum(&out[ETHER + 12..ETHER + 20], 0);
            out[ETHER + 10..ETHER + 12].copy_from_slice(&(!checksum::fold(t.ip_sum + sum)).to_be_bytes());
            sum
        };
        out[t.l4..t.l4 + 2].copy_from_slice(&tuple.source_port.to_be_bytes());
        out[t.l4 + 2..t.l4 + 4].copy_from_slice(&tuple.destination_port.to_be_bytes());
        let mut own_sum = u32::from(tuple.source_port) + u32::from(tuple.destination_port);
        if let Some(at) = t.timestamp {
            out[at..at + 8].copy_from_slice(&tuple.timestamp.to_be_bytes());
            own_sum = checksum::sum(&out[at..at + 8], own_sum);
        }
        let sum = !checksum::fold(u32::from(checksum::fold(t.l4_sum + address_sum)) + own_sum);
        let sum = if sum == 0 { 0xffff } else { sum };
        out[t.l4_checksum..t.l4_checksum + 2].copy_from_slice(&sum.to_be_bytes());
        len
    }
}

/// The position of a flow's template.
fn template_of(proto: Proto, flow: u32) -> usize {
    match proto {
        Proto::Tcp => 0,
        Proto::Udp => 1,
        Proto::Mix => (flow & 1) as usize,
    }
}

fn zipf_draws(flows: u32, rng: &mut SmallRng) -> Vec<u32> {
    match Zipf::new(f64::from(flows.max(1)), 1.0) {
        Ok(zipf) => (0..ZIPF_DRAWS).map(|_| zipf.sample(rng) as u32 - 1).collect(),
        Err(_) => vec![0],
    }
}

fn tuple(config: &Generated, flow: u32) -> Tuple {
    let a = mix(config.seed ^ (u64::from(flow) << 1));
    let b = mix(a ^ 0x006d_6d62);
    let (source, destination) = if config.ip6 {
        let net = 0x2001_0002u128 << 96;
        (net | u128::from(a >> 1), net | (1 << 79) | u128::from(b >> 1))
    } else {
        (0x0a00_0000 | u128::from(a as u32 >> 8), 0xc612_0000 | u128::from(b as u32 >> 15))
    };
    let destination = config.destinations.map_or(destination, |prefixes| prefixes.address(b));
    Tuple {
        source,
        destination,
        source_port: 1024 + (a >> 48) as u16 % (65_535 - 1024),
        destination_port: 1 + (b >> 48) as u16 % 65_534,
        timestamp: mix(b),
    }
}

fn template(config: &Generated, proto: u8, payload: &[u8]) -> Template {
    let l3_len = if config.ip6 { 40 } else { 20 };
    let l4_len = if proto == 6 { 32 } else { 8 };
    let headers = ETHER + l3_len + l4_len;
    let len = config.size.clamp(headers, MAX_FRAME);
    let mut frame = vec![0u8; len];
    frame[0..6].copy_from_slice(&NEAR);
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 1]);
    let l3_bytes = len - ETHER;
    let l4_bytes = (l3_bytes - l3_len) as u16;
    if config.ip6 {
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14] = 0x60;
        frame[18..20].copy_from_slice(&l4_bytes.to_be_bytes());
        frame[20] = proto;
        frame[21] = 64;
    } else {
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&(l3_bytes as u16).to_be_bytes());
        frame[20] = 0x40;
        frame[22] = 64;
        frame[23] = proto;
    }
    let l4 = ETHER + l3_len;
    if proto == 6 {
        frame[l4 + 4..l4 + 12].copy_from_slice(&payload[..8]);
        frame[l4 + 12] = 8 << 4;
        frame[l4 + 13] = if config.order == Order::Fresh { SYN } else { ACK };
        frame[l4 + 14..l4 + 16].copy_from_slice(&[0xff, 0xff]);
        frame[l4 + 20..l4 + 24].copy_from_slice(&[1, 1, 8, 10]);
    } else {
        frame[l4 + 4..l4 + 6].copy_from_slice(&l4_bytes.to_be_bytes());
    }
    frame[headers..].copy_from_slice(&payload[headers..len]);
    let start = config.payload.len().min(len - headers);
    frame[headers..headers + start].copy_from_slice(&config.payload[..start]);
    let pseudo = u32::from(proto) + u32::from(l4_bytes);
    Template {
        l4,
        l4_checksum: l4 + if proto == 6 { 16 } else { 6 },
        timestamp: (proto == 6).then_some(l4 + 24),
        sequence: u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]),
        payload: (len - headers) as u32,
        ip_sum: checksum::sum(&frame[ETHER..ETHER + 20], 0),
        l4_sum: u32::from(checksum::fold(checksum::sum(&frame[l4..], pseudo))),
        frame,
    }
}

#[cfg(test)]
mod tests;
