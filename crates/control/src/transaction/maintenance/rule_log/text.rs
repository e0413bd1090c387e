//! Text of the lines about packets that rules log.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use mmb_dataplane::{LoggedHeaders, LoggedPacket};
use mmb_packet::DropReason;
use mmb_policy::RuleLog;

use super::{Entry, PortName, flag_names, output, verdict};
use crate::text::count;

/// The line of an entry, without a time and the end of the line.
pub fn line(entry: &Entry<'_>, port_name: PortName<'_>) -> String {
    match entry {
        Entry::Packet(packet) => packet_line(packet, port_name),
        Entry::Suppressed { rule, log, packets } => {
            let mut text = beginning(*rule, log);
            text.push_str(&format!("{} more", count(*packets, "packet")));
            text
        }
        Entry::Lost(packets) => format!("log: {} lost: too many at once", count(*packets, "packet")),
    }
}

/// The beginning of a line.
fn beginning(rule: u32, log: &RuleLog) -> String {
    let prefix = log.prefix.as_ref().map(|prefix| format!("{prefix}: ")).unwrap_or_default();
    match &log.name {
        Some(name) => format!("{prefix}rule {rule} {name}: "),
        None => format!("{prefix}rule {rule}: "),
    }
}

fn packet_line(packet: &LoggedPacket, port_name: PortName<'_>) -> String {
    let mut text = beginning(packet.rule, &packet.log);
    let (word, reason) = verdict(packet);
    text.push_str(word);
    // Writing to a string does not fail.
    if let Some(reason) = reason.filter(|reason| *reason != DropReason::Rule) {
        let _ = write!(text, " {}", reason.name());
    }
    if let Some(name) = port_name(packet.in_port) {
        let _ = write!(text, " in {name}");
    }
    if let Some(name) = output(packet, port_name) {
        let _ = write!(text, " out {name}");
    }
    describe(&mut text, &packet.headers);
    let _ = write!(text, " length {}", packet.headers.length);
    text
}

/// Appends protocol, addresses, ports and flags.
fn describe(text: &mut String, headers: &LoggedHeaders) {
    let _ = match mmb_lang::protocol_name(headers.protocol) {
        Some(name) => write!(text, " {name}"),
        None => write!(text, " protocol {}", headers.protocol),
    };
    if let Some([source, destination]) = headers.addresses {
        let end = |address: IpAddr, port: Option<u16>| match port {
            Some(port) => SocketAddr::new(address, port).to_string(),
            None => address.to_string(),
        };
        let ports = headers.ports;
        let (from, to) = (end(source, ports.map(|p| p[0])), end(destination, ports.map(|p| p[1])));
        let _ = write!(text, " {from} -> {to}");
    }
    if let Some([kind, code]) = headers.icmp {
        let _ = write!(text, " type {kind} code {code}");
    }
    if let Some(bits) = headers.tcp_flags {
        let names = flag_names(bits);
        let _ = write!(text, " flags {}", if names.is_empty() { "none".to_owned() } else { names.join(",") });
    }
    if headers.is_fragment {
        text.push_str(" fragment");
    }
}
