//! JSON of the lines about packets that rules log: one object (RFC 8259) for each.

use std::net::IpAddr;

use mmb_dataplane::LoggedPacket;
use mmb_packet::DropReason;
use mmb_policy::RuleLog;
use serde::Serialize;

use super::{Entry, PortName, flag_names, output, verdict};
use crate::text::mac_text;

/// An entry as an object. Members that the packet does not have are missing.
#[derive(Default, Serialize)]
struct Object<'a> {
    /// When the line was written: RFC 3339, UTC.
    time: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    rule: Option<RuleNames<'a>>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    packet: Option<PacketObject>,
    /// Packets of the rule beyond its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<u64>,
    /// Packets of all rules that did not fit the buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

#[derive(Serialize)]
struct RuleNames<'a> {
    rule: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<&'a str>,
}

#[derive(Serialize)]
struct PacketObject {
    /// `pass`, `drop` or `reject`.
    verdict: &'static str,
    /// Why it was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[serde(rename = "out", skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    /// Ethernet addresses.
    source_mac: String,
    destination_mac: String,
    /// The number, and its name if it has one.
    protocol: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol_name: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_flags: Option<Vec<&'static str>>,
    fragment: bool,
    /// Bytes of the frame.
    length: u32,
}

/// The line of an entry, without the end of the line.
pub fn line(time: &str, entry: &Entry<'_>, port_name: PortName<'_>) -> String {
    let mut object = Object { time, ..Object::default() };
    match entry {
        Entry::Packet(packet) => {
            object.rule = Some(names(packet.rule, &packet.log));
            object.packet = Some(packet_object(packet, port_name));
        }
        Entry::Suppressed { rule, log, packets } => {
            object.rule = Some(names(*rule, log));
            object.suppressed = Some(*packets);
        }
        Entry::Lost(packets) => object.lost = Some(*packets),
    }
    // Text and numbers become JSON without an error.
    serde_json::to_string(&object).unwrap_or_default()
}

fn names(rule: u32, log: &RuleLog) -> RuleNames<'_> {
    RuleNames { rule, name: log.name.as_deref(), prefix: log.prefix.as_deref() }
}

fn packet_object(packet: &LoggedPacket, port_name: PortName<'_>) -> PacketObject {
    let headers = &packet.headers;
    let (verdict, reason) = verdict(packet);
    let [source_mac, destination_mac] = headers.ethernet.map(mac_text);
    PacketObject {
        verdict,
        reason: reason.map(DropReason::name),
        input: port_name(packet.in_port),
        output: output(packet, port_name),
        source_mac,
        destination_mac,
        protocol: headers.protocol,
        protocol_name: mmb_lang::protocol_name(headers.protocol),
        source: headers.addresses.map(|[source, _]| source),
        source_port: headers.ports.map(|[source, _]| source),
        destination: headers.addresses.map(|[_, destination]| destination),
        destination_port: headers.ports.map(|[_, destination]| destination),
        icmp_type: headers.icmp.map(|[kind, _]| kind),
        icmp_code: headers.icmp.map(|[_, code]| code),
        tcp_flags: headers.tcp_flags.map(flag_names),
        fragment: headers.is_fragment,
        length: headers.length,
    }
}
