//! Records of `count`: a session, or a part of one.

use std::net::IpAddr;
use std::time::SystemTime;

use mmb_flow::Key;
use serde::Serialize;

use crate::shared::endpoints::Endpoints;
use crate::shared::export_queue::ClockReading;

/// A record as a worker makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Key of forward packets.
    pub key: Key,
    /// By direction, like all pairs below.
    pub bytes: [u64; 2],
    pub packets: [u32; 2],
    /// Milliseconds of the worker's clock.
    pub first: u32,
    pub last: u32,
    /// All TCP flags that were seen.
    pub flags: [u8; 2],
    pub ended: Ended,
}

/// Why a record was made; the numbers are those of IPFIX's flowEndReason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    /// The session has ended, or left the chain.
    Idle = 1,
    /// The session goes on.
    Active = 2,
    /// Both sides have closed it, or one has reset it.
    Closed = 3,
}

impl Ended {
    /// [`Ended::Closed`] if these flags say so.
    pub fn or_closed(self, proto: u8, flags: [u8; 2]) -> Ended {
        const TCP: u8 = 6;
        const FIN: u8 = 0x01;
        const RST: u8 = 0x04;
        let closed = flags[0] & flags[1] & FIN != 0 || (flags[0] | flags[1]) & RST != 0;
        if proto == TCP && closed { Ended::Closed } else { self }
    }
}

/// A record with times of day, to be exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub start: SystemTime,
    pub end: SystemTime,
    pub ends: Endpoints,
    pub record: Record,
}

impl Flow {
    pub fn new(times: &ClockReading, record: Record) -> Flow {
        let (start, end) = (times.of(record.first), times.of(record.last));
        Flow { start, end, ends: Endpoints::of(&record.key), record }
    }

    /// Returns the record as a line of JSON.
    pub fn json(&self) -> String {
        let Flow { start, end, ends, record } = self;
        let time = |time| humantime::format_rfc3339_millis(time).to_string();
        let line = Line {
            start: time(*start),
            end: time(*end),
            ended: record.ended,
            proto: ends.proto,
            source: ends.source,
            destination: ends.destination,
            source_port: ends.ports.map(|(port, _)| port),
            destination_port: ends.ports.map(|(_, port)| port),
            icmp_type: ends.query.map(|(kind, _)| kind),
            icmp_id: ends.query.map(|(_, id)| id),
            packets: record.packets,
            bytes: record.bytes,
            tcp_flags: (ends.proto == 6).then_some(record.flags),
        };
        // Serializing numbers, strings and arrays does not fail.
        let mut line = serde_json::to_string(&line).unwrap_or_default();
        line.push('\n');
        line
    }
}

#[derive(Serialize)]
struct Line {
    start: String,
    end: String,
    ended: Ended,
    proto: u8,
    source: IpAddr,
    destination: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_id: Option<u16>,
    packets: [u32; 2],
    bytes: [u64; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_flags: Option<[u8; 2]>,
}
