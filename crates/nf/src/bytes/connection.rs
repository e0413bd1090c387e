//! Stream functions over connections that a broker ends.
//!
//! Theory of operation. A broker has the bytes of a connection in order, so that no stream context is needed.
//! [`ByteStreams`] calls the same functions with them: those of the client in the order of the chain, those
//! for the client in reverse order. Each function gets what the one in front of it has left. What it holds
//! back is kept here, and comes again with the next bytes. Functions that look at a packet, for the addresses
//! of the connection, get one without payload.
//!
//! Brokers have a worker number of their own. The state of that worker belongs to the instance, behind a lock
//! that is free unless several brokers use the instance.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Instant;

use mmb_flow::{Direction, SessionId, parse_key};
use mmb_packet::{Meta, parse};

use super::raw::{BrokerRoom, Follows, PassedBytes, RawBytes, Refusal};
use crate::context::Holding;
use crate::instance::RawContext;
use crate::{Instance, Packet, SessionInfo};

/// Lengths of headers without options.
const ETHERNET: usize = 14;
const IP4: usize = 20;
const IP6: usize = 40;
const TCP: usize = 20;
const ETHERTYPE_IP4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IP6: [u8; 2] = [0x86, 0xdd];
const PROTOCOL_TCP: u8 = 6;

/// Most bytes of a direction that wait for a function. Then they go on.
const MOST_HELD: usize = 1 << 20;

/// A function and what it knows of a connection.
struct Visited {
    instance: Arc<Instance>,
    /// The scratchpad, aligned.
    pad: Vec<u64>,
    /// Bytes that the function holds back, by direction.
    tails: [Vec<u8>; 2],
    /// The function reads no more.
    is_detached: bool,
}

/// The headers of a direction.
struct Headers {
    head: Vec<u8>,
    meta: Meta,
}

/// A connection that passes stream functions without packets.
pub struct ByteStreams {
    functions: Vec<Visited>,
    headers: [Headers; 2],
    session: SessionInfo,
    /// What the functions so far have left, and what the next one gets.
    passed: PassedBytes,
    input: Vec<u8>,
    has_ended: [bool; 2],
}

impl std::fmt::Debug for ByteStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.functions.iter().map(|function| function.instance.name())).finish()
    }
}

/// Returns milliseconds of the clock that all brokers share. It wraps.
fn now() -> u32 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_millis() as u32
}

impl ByteStreams {
    /// A connection begins. None: an address of an end cannot be represented.
    pub fn open(functions: &[Arc<Instance>], client: SocketAddr, server: SocketAddr) -> Option<ByteStreams> {
        let headers = [Headers::new(client, server)?, Headers::new(server, client)?];
        let key = parse_key(&headers[0].head, &headers[0].meta).ok()?;
        let at = now();
        let session = SessionInfo {
            id: SessionId(0),
            key,
            ingress_key: key,
            egress_key: key,
            created: at,
            now: at,
            in_port: u16::MAX,
            uid: 0,
            packets: [0; 2],
            bytes: [0; 2],
        };
        let functions = functions.iter().map(|instance| Visited {
            instance: instance.clone(),
            pad: vec![0; instance.function.pad().0.div_ceil(size_of::<u64>())],
            tails: [Vec::new(), Vec::new()],
            is_detached: false,
        });
        let mut streams = ByteStreams {
            functions: functions.collect(),
            headers,
            session,
            passed: PassedBytes::default(),
            input: Vec::new(),
            has_ended: [false; 2],
        };
        streams.functions.iter_mut().for_each(|function| function.open(&session));
        Some(streams)
    }

    /// Passes bytes of a direction through the functions. `out` gets what goes on.
    ///
    /// # Errors
    /// A function does not let the connection go on. `out` has what went on before.
    pub fn push(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        follows: Follows,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let at = direction as usize;
        if self.has_ended[at] {
            return Ok(());
        }
        self.has_ended[at] = follows == Follows::End;
        let ByteStreams { functions, headers, passed, input, .. } = self;
        let Headers { head, meta } = &mut headers[at];
        let packet = Packet {
            len: head.len() as u32,
            segment_size: 0,
            head,
            tail: None,
            meta,
            in_port: u16::MAX,
            direction,
            session: SessionId(0),
        };
        passed.out.clear();
        passed.out.extend_from_slice(bytes);
        let count = functions.len();
        for number in 0..count {
            let number = if direction == Direction::Forward { number } else { count - 1 - number };
            if let Some(function) = functions.get_mut(number) {
                function.pass(&packet, follows, (passed, input))?;
            }
        }
        out.extend_from_slice(&passed.out);
        Ok(())
    }

    /// Whether functions hold back bytes of a direction.
    pub fn is_holding(&self, direction: Direction) -> bool {
        self.functions.iter().any(|function| !function.tails[direction as usize].is_empty())
    }
}

impl Drop for ByteStreams {
    fn drop(&mut self) {
        let session = SessionInfo { now: now(), ..self.session };
        self.functions.iter_mut().for_each(|function| function.release(&session));
    }
}

impl Visited {
    /// Calls a closure with what brokers have of the instance.
    fn with_room<R>(instance: &Instance, f: impl FnOnce(RawContext<'_>, &mut dyn Any) -> R) -> R {
        let (place, worker) = instance.broker_room();
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        let room = place.get_or_insert_with(|| BrokerRoom::new(instance.function.local()));
        let BrokerRoom { local, emissions, held } = room;
        let holding = Holding::new(held);
        let cx =
            RawContext { now: now(), worker, emissions, at: None, ingress: u16::MAX, holding, edits: None };
        let result = f(cx, &mut **local);
        // There is no port by which a frame could leave.
        room.emissions.clear();
        result
    }

    fn open(&mut self, session: &SessionInfo) {
        let Visited { instance, pad, .. } = self;
        Self::with_room(instance, |cx, local| {
            instance.function.open(
                bytes_of(pad, instance),
                &SessionInfo { created: cx.now, now: cx.now, ..*session },
                cx,
                local,
            );
        });
    }

    fn release(&mut self, session: &SessionInfo) {
        let Visited { instance, pad, .. } = self;
        Self::with_room(instance, |cx, local| {
            instance.function.release(bytes_of(pad, instance), session, cx, local);
        });
    }

    /// Passes bytes through the function. They are replaced by those that go on.
    fn pass(
        &mut self,
        packet: &Packet<'_>,
        follows: Follows,
        (passed, input): (&mut PassedBytes, &mut Vec<u8>),
    ) -> Result<(), Refusal> {
        let Visited { instance, pad, tails, is_detached } = self;
        let tail = &mut tails[packet.direction as usize];
        let is_idle = passed.out.is_empty() && tail.is_empty() && follows != Follows::End;
        if is_idle || *is_detached && tail.is_empty() {
            return Ok(());
        }
        let held = tail.len();
        let follows = match follows {
            Follows::More if held + passed.out.len() > MOST_HELD => Follows::Answer,
            follows => follows,
        };
        input.clear();
        input.append(tail);
        input.append(&mut passed.out);
        passed.rest.clear();
        passed.is_detached = false;
        let raw = RawBytes { packet, bytes: input, held, follows };
        let result = Self::with_room(instance, |cx, local| {
            instance.function.read_bytes(&raw, passed, bytes_of(pad, instance), (cx, local))
        });
        tail.append(&mut passed.rest);
        *is_detached |= passed.is_detached;
        result
    }
}

/// Returns a scratchpad as bytes.
fn bytes_of<'a>(pad: &'a mut [u64], instance: &Instance) -> &'a mut [u8] {
    bytemuck::cast_slice_mut(pad).get_mut(..instance.function.pad().0).unwrap_or_default()
}

impl Headers {
    /// Makes the headers of a segment without payload. None: the ends are of two families.
    fn new(from: SocketAddr, to: SocketAddr) -> Option<Headers> {
        let mut head = vec![0; ETHERNET];
        let kind = match (from.ip().to_canonical(), to.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let len = ((IP4 + TCP) as u16).to_be_bytes();
                head.extend_from_slice(&[0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, PROTOCOL_TCP, 0, 0]);
                head.extend_from_slice(&source.octets());
                head.extend_from_slice(&destination.octets());
                ETHERTYPE_IP4
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let len = (TCP as u16).to_be_bytes();
                head.extend_from_slice(&[0x60, 0, 0, 0, len[0], len[1], PROTOCOL_TCP, 64]);
                head.extend_from_slice(&source.octets());
                head.extend_from_slice(&destination.octets());
                ETHERTYPE_IP6
            }
            _ => return None,
        };
        head.get_mut(ETHERNET - 2..ETHERNET)?.copy_from_slice(&kind);
        head.extend_from_slice(&from.port().to_be_bytes());
        head.extend_from_slice(&to.port().to_be_bytes());
        // Numbers are zero; five words of header, and the flag ACK (RFC 9293, 3.1).
        head.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        let mut meta = Meta::default();
        parse(&head, head.len(), &mut meta).ok()?;
        debug_assert!(head.len() >= ETHERNET + IP4.min(IP6) + TCP);
        Some(Headers { head, meta })
    }
}
