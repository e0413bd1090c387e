//! Log lines of packets that rules log.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mmb_dataplane::{LogVerdict, LoggedHeaders, LoggedPacket, PortId};
use mmb_packet::DropReason;
use mmb_policy::RuleLog;

use super::nat_log::utc;
use crate::config::Config;
use crate::query::ports::PortNames;
use crate::text::count;

/// Time between two reports of packets beyond the limit of a rule.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Names of the flags of TCP, from the lowest bit on (RFC 9293, 3.1).
const TCP_FLAGS: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];

/// Writes the lines, and keeps what the next ones need.
#[derive(Debug, Default)]
pub(super) struct RuleLogWriter {
    /// The rules that may have suppressed lines, with their indexes.
    active: Vec<(u32, Arc<RuleLog>)>,
    reported: Option<Instant>,
    /// Packets that have been lost so far.
    lost: u64,
}

impl RuleLogWriter {
    /// The lines of these packets. `port_name`: the name of an interface by its port.
    fn lines(
        &mut self,
        now: &str,
        (packets, lost): (&[LoggedPacket], u64),
        port_name: impl Fn(u16) -> Option<String>,
    ) -> String {
        let mut text = String::new();
        for packet in packets {
            line(&mut text, now, packet, &port_name);
            if !self.active.iter().any(|(_, log)| Arc::ptr_eq(log, &packet.log)) {
                self.active.push((packet.rule, packet.log.clone()));
            }
        }
        if lost > self.lost {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{now} log: {} lost: too many at once", count(lost - self.lost, "packet"));
            self.lost = lost;
        }
        text
    }

    /// Lines about the packets beyond the limits, once a second.
    fn reports(&mut self, now: &str, time: Instant) -> String {
        let mut text = String::new();
        if self.reported.is_some_and(|last| time.saturating_duration_since(last) < REPORT_INTERVAL) {
            return text;
        }
        self.reported = Some(time);
        // A rule that goes on logging comes back with its next line.
        for (rule, log) in std::mem::take(&mut self.active) {
            let suppressed = log.take_suppressed();
            if suppressed > 0 {
                begin(&mut text, now, rule, &log);
                let _ = writeln!(text, "{} more", count(suppressed, "packet"));
                self.active.push((rule, log));
            }
        }
        text
    }
}

/// Appends the beginning of a line.
fn begin(text: &mut String, now: &str, rule: u32, log: &RuleLog) {
    let _ = write!(text, "{now} ");
    if let Some(prefix) = &log.prefix {
        let _ = write!(text, "{prefix}: ");
    }
    let _ = match &log.name {
        Some(name) => write!(text, "rule {rule} {name}: "),
        None => write!(text, "rule {rule}: "),
    };
}

/// Appends the line of a packet.
fn line(text: &mut String, now: &str, packet: &LoggedPacket, port_name: impl Fn(u16) -> Option<String>) {
    begin(text, now, packet.rule, &packet.log);
    let _ = match packet.verdict {
        LogVerdict::Passed(_) => write!(text, "pass"),
        LogVerdict::Dropped(number) | LogVerdict::Answered(number) => match DropReason::from_number(number) {
            Some(DropReason::Rule) if packet.verdict == LogVerdict::Answered(number) => {
                write!(text, "reject")
            }
            Some(DropReason::Rule) | None => write!(text, "drop"),
            Some(reason) => write!(text, "drop {}", reason.name()),
        },
    };
    if let Some(name) = port_name(packet.in_port) {
        let _ = write!(text, " in {name}");
    }
    if let LogVerdict::Passed(out) = packet.verdict
        && let Some(name) = port_name(out)
    {
        let _ = write!(text, " out {name}");
    }
    describe(text, &packet.headers);
    let _ = writeln!(text, " length {}", packet.headers.length);
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
        let set = TCP_FLAGS.iter().enumerate().filter(|(at, _)| bits >> at & 1 != 0);
        let names: Vec<&str> = set.map(|(_, name)| *name).collect();
        let _ = write!(text, " flags {}", if names.is_empty() { "none".to_owned() } else { names.join(",") });
    }
    if headers.is_fragment {
        text.push_str(" fragment");
    }
}

impl RuleLogWriter {
    /// The lines of these packets and about the packets beyond the limits; `lost` as for
    /// [`mmb_dataplane::Engine::logged_packets`].
    pub fn write(&mut self, (packets, lost): (&[LoggedPacket], u64), config: &Config) -> String {
        if packets.is_empty() && lost == self.lost && self.active.is_empty() {
            return String::new();
        }
        let now = utc(SystemTime::now());
        let names = PortNames::of(config);
        let mut text = self.lines(&now, (packets, lost), |port| names.get(PortId(port)));
        text.push_str(&self.reports(&now, Instant::now()));
        text
    }
}

#[cfg(test)]
mod tests {
    use mmb_policy::Policy;

    use super::*;

    fn rule_log(line: &str) -> Arc<RuleLog> {
        let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line(line) else { panic!("{line}") };
        let mut policy = Policy::new();
        policy.add(&rule, &|_| None).unwrap();
        policy.rule_log(0).unwrap().clone()
    }

    fn packet(log: &Arc<RuleLog>, verdict: LogVerdict) -> LoggedPacket {
        let headers = LoggedHeaders {
            addresses: Some([[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]),
            protocol: 6,
            ports: Some([4000, 23]),
            tcp_flags: Some(0x12),
            length: 60,
            ..LoggedHeaders::default()
        };
        LoggedPacket { rule: 3, log: log.clone(), in_port: 0, verdict, headers }
    }

    fn port(port: u16) -> Option<String> {
        ["left", "right"].get(usize::from(port)).map(|name| (*name).to_owned())
    }

    #[test]
    fn a_packet_is_one_line() {
        let log = rule_log(r#"add all log prefix "a \"b\"" drop name telnet"#);
        let line = |verdict| {
            let packets = [packet(&log, verdict)];
            RuleLogWriter::default().lines("T", (&packets, 0), port)
        };
        assert_eq!(
            line(LogVerdict::Dropped(DropReason::Rule as u8)),
            "T a \"b\": rule 3 telnet: drop in left tcp 10.0.0.1:4000 -> 10.0.0.2:23 flags SYN,ACK length 60\n"
        );
        assert!(line(LogVerdict::Passed(1)).contains(": pass in left out right tcp "));
        assert!(line(LogVerdict::Answered(DropReason::Rule as u8)).contains(": reject in left tcp "));
        let limit = LogVerdict::Dropped(DropReason::SessionLimit as u8);
        assert!(line(limit).contains(&format!(": drop {} in left", DropReason::SessionLimit.name())));
    }

    #[test]
    fn packets_beyond_the_limit_are_reported_once_a_second() {
        let (log, start) = (rule_log("add all log"), Instant::now());
        let mut writer = RuleLogWriter::default();
        let packets: Vec<LoggedPacket> =
            (0..100).filter(|_| log.take(5)).map(|_| packet(&log, LogVerdict::Passed(1))).collect();
        let text = writer.lines("T", (&packets, 7), port);
        assert_eq!(text.lines().count(), 20 + 1);
        assert!(text.ends_with("T log: 7 packets lost: too many at once\n"));
        assert_eq!(writer.reports("T", start), "T rule 3: 80 packets more\n");
        assert!(!log.take(5));
        let later = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(writer.reports("T", later(900)), "");
        assert_eq!(writer.reports("T", later(1_000)), "T rule 3: 1 packet more\n");
        assert_eq!(writer.reports("T", later(2_000)), "");
        assert!(writer.active.is_empty());
    }
}
