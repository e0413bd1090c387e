//! Log lines of packets that rules log.

mod json;
mod text;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mmb_dataplane::{LogVerdict, LoggedPacket, PortId};
use mmb_lang::{LogFormat, LogSink};
use mmb_packet::DropReason;
use mmb_policy::RuleLog;
use mmb_system::log;
use mmb_system::syslog::Syslog;

use super::utc;
use crate::config::{Config, PacketLog};
use crate::query::ports::PortNames;

/// Time between two reports of packets beyond the limit of a rule.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Names of the flags of TCP, from the lowest bit on (RFC 9293, 3.1).
const TCP_FLAGS: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];

/// The name of an interface by its port.
type PortName<'a> = &'a dyn Fn(u16) -> Option<String>;

/// What becomes a line.
enum Entry<'a> {
    /// A packet.
    Packet(&'a LoggedPacket),
    /// Packets beyond the limit of a rule.
    Suppressed { rule: u32, log: Arc<RuleLog>, packets: u64 },
    /// Packets that did not fit the workers' buffers.
    Lost(u64),
}

/// Writes the lines, and keeps what the next ones need.
#[derive(Debug)]
pub(super) struct RuleLogWriter {
    syslog: Syslog,
    /// The rules that may have suppressed lines, with their indexes.
    active: Vec<(u32, Arc<RuleLog>)>,
    reported: Option<Instant>,
    /// Packets that have been lost so far.
    lost: u64,
}

impl RuleLogWriter {
    /// A writer that knows the system's log.
    pub fn new(syslog: Syslog) -> RuleLogWriter {
        RuleLogWriter { syslog, active: Vec::new(), reported: None, lost: 0 }
    }

    /// The entries of these packets, and of the packets that have been lost since the last call.
    fn entries<'a>(&mut self, (packets, lost): (&'a [LoggedPacket], u64)) -> Vec<Entry<'a>> {
        let mut entries = Vec::new();
        for packet in packets {
            entries.push(Entry::Packet(packet));
            if !self.active.iter().any(|(_, log)| Arc::ptr_eq(log, &packet.log)) {
                self.active.push((packet.rule, packet.log.clone()));
            }
        }
        if lost > self.lost {
            entries.push(Entry::Lost(lost - self.lost));
            self.lost = lost;
        }
        entries
    }

    /// Entries about the packets beyond the limits, once a second.
    fn reports(&mut self, time: Instant) -> Vec<Entry<'static>> {
        let mut entries = Vec::new();
        if self.reported.is_some_and(|last| time.saturating_duration_since(last) < REPORT_INTERVAL) {
            return entries;
        }
        self.reported = Some(time);
        // A rule that goes on logging comes back with its next line.
        for (rule, log) in std::mem::take(&mut self.active) {
            let packets = log.take_suppressed();
            if packets > 0 {
                entries.push(Entry::Suppressed { rule, log: log.clone(), packets });
                self.active.push((rule, log));
            }
        }
        entries
    }

    /// Writes lines about these packets and about the packets beyond the limits; `lost` as for
    /// [`mmb_dataplane::Engine::logged_packets`].
    pub fn write(&mut self, (packets, lost): (&[LoggedPacket], u64), config: &Config) {
        if packets.is_empty() && lost == self.lost && self.active.is_empty() {
            return;
        }
        let names = PortNames::of(config);
        let port_name = |port| names.get(PortId(port));
        let mut entries = self.entries((packets, lost));
        entries.extend(self.reports(Instant::now()));
        let time = utc(SystemTime::now());
        let lines = entries.iter().map(|entry| line(&time, entry, config.packet_log(), &port_name));
        match config.packet_log().sink {
            LogSink::Syslog => lines.for_each(|line| self.syslog.send(&line)),
            LogSink::Stderr if !entries.is_empty() => {
                log::error(lines.map(|line| line + "\n").collect::<String>())
            }
            LogSink::Stderr => {}
        }
    }
}

/// The line of an entry. The system's log has its own time.
fn line(time: &str, entry: &Entry<'_>, log: PacketLog, port_name: PortName<'_>) -> String {
    match (log.format, log.sink) {
        (LogFormat::Json, _) => json::line(time, entry, port_name),
        (LogFormat::Text, LogSink::Syslog) => text::line(entry, port_name),
        (LogFormat::Text, LogSink::Stderr) => format!("{time} {}", text::line(entry, port_name)),
    }
}

/// The verdict on a packet, `pass`, `drop` or `reject`, and why it was dropped.
fn verdict(packet: &LoggedPacket) -> (&'static str, Option<DropReason>) {
    match packet.verdict {
        LogVerdict::Passed(_) => ("pass", None),
        LogVerdict::Dropped(number) => ("drop", DropReason::from_number(number)),
        LogVerdict::Answered(number) => match DropReason::from_number(number) {
            Some(DropReason::Rule) => ("reject", Some(DropReason::Rule)),
            reason => ("drop", reason),
        },
    }
}

/// The name of the interface by which a packet leaves.
fn output(packet: &LoggedPacket, port_name: PortName<'_>) -> Option<String> {
    match packet.verdict {
        LogVerdict::Passed(port) => port_name(port),
        _ => None,
    }
}

/// Names of the flags of TCP that are set.
fn flag_names(bits: u8) -> Vec<&'static str> {
    let set = TCP_FLAGS.iter().enumerate().filter(|(at, _)| bits >> at & 1 != 0);
    set.map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use mmb_dataplane::LoggedHeaders;
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
            ethernet: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0xfe]],
            ..LoggedHeaders::default()
        };
        LoggedPacket { rule: 3, log: log.clone(), in_port: 0, verdict, headers }
    }

    fn port(port: u16) -> Option<String> {
        ["left", "right"].get(usize::from(port)).map(|name| (*name).to_owned())
    }

    fn writer() -> RuleLogWriter {
        RuleLogWriter::new(Syslog::new("/nonexistent".into()))
    }

    /// Text of entries.
    fn texts(entries: &[Entry<'_>]) -> Vec<String> {
        entries.iter().map(|entry| line("T", entry, PacketLog::default(), &port)).collect()
    }

    #[test]
    fn a_packet_is_one_line() {
        let log = rule_log(r#"add all log prefix "a \"b\"" drop name telnet"#);
        let line = |verdict| texts(&[Entry::Packet(&packet(&log, verdict))]).concat();
        assert_eq!(
            line(LogVerdict::Dropped(DropReason::Rule as u8)),
            "T a \"b\": rule 3 telnet: drop in left tcp 10.0.0.1:4000 -> 10.0.0.2:23 flags SYN,ACK length 60"
        );
        assert!(line(LogVerdict::Passed(1)).contains(": pass in left out right tcp "));
        assert!(line(LogVerdict::Answered(DropReason::Rule as u8)).contains(": reject in left tcp "));
        let limit = LogVerdict::Dropped(DropReason::SessionLimit as u8);
        assert!(line(limit).contains(&format!(": drop {} in left", DropReason::SessionLimit.name())));
    }

    #[test]
    fn a_packet_is_one_object() {
        let log = rule_log(r#"add all log prefix "a \"b\\" drop name telnet"#);
        let mut packet = packet(&log, LogVerdict::Dropped(DropReason::SessionLimit as u8));
        let json = |packet: &LoggedPacket, sink| {
            let log = PacketLog { format: LogFormat::Json, sink };
            let line = line("T", &Entry::Packet(packet), log, &port);
            assert!(!line.contains(|c: char| c.is_control()));
            serde_json::from_str::<serde_json::Value>(&line).unwrap()
        };
        let expected = serde_json::json!({
            "time": "T", "rule": 3, "name": "telnet", "prefix": "a \"b\\",
            "verdict": "drop", "reason": DropReason::SessionLimit.name(), "in": "left",
            "source_mac": "02:00:00:00:00:01", "destination_mac": "02:00:00:00:00:fe",
            "protocol": 6, "protocol_name": "tcp",
            "source": "10.0.0.1", "source_port": 4000, "destination": "10.0.0.2", "destination_port": 23,
            "tcp_flags": ["SYN", "ACK"], "fragment": false, "length": 60,
        });
        assert_eq!(json(&packet, LogSink::Stderr), expected);
        assert_eq!(json(&packet, LogSink::Syslog), expected);
        packet.verdict = LogVerdict::Passed(1);
        packet.headers = LoggedHeaders {
            addresses: Some(["2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()]),
            protocol: 253,
            icmp: Some([128, 0]),
            is_fragment: true,
            ..LoggedHeaders::default()
        };
        let object = json(&packet, LogSink::Stderr);
        assert_eq!((&object["verdict"], &object["out"]), (&"pass".into(), &"right".into()));
        assert_eq!(object["source"], "2001:db8::1");
        assert_eq!((&object["icmp_type"], &object["icmp_code"]), (&128.into(), &0.into()));
        assert_eq!(object["fragment"], true);
        for missing in ["reason", "protocol_name", "source_port", "tcp_flags", "suppressed", "lost"] {
            assert!(object.get(missing).is_none(), "{missing}");
        }
        packet.verdict = LogVerdict::Answered(DropReason::Rule as u8);
        let object = json(&packet, LogSink::Stderr);
        assert_eq!((&object["verdict"], &object["reason"]), (&"reject".into(), &"rule".into()));
    }

    #[test]
    fn packets_beyond_the_limit_are_reported_once_a_second() {
        let (log, start) = (rule_log("add all log name web"), Instant::now());
        let mut writer = writer();
        let packets: Vec<LoggedPacket> =
            (0..100).filter(|_| log.take(5)).map(|_| packet(&log, LogVerdict::Passed(1))).collect();
        let entries = writer.entries((&packets, 7));
        assert_eq!(entries.len(), 20 + 1);
        assert_eq!(texts(&entries)[20], "T log: 7 packets lost: too many at once");
        assert_eq!(json::line("T", &entries[20], &port), r#"{"time":"T","lost":7}"#);
        let reports = writer.reports(start);
        assert_eq!(texts(&reports), ["T rule 3 web: 80 packets more"]);
        let object = r#"{"time":"T","rule":3,"name":"web","suppressed":80}"#;
        assert_eq!(json::line("T", &reports[0], &port), object);
        assert!(!log.take(5));
        let later = |milliseconds| start + Duration::from_millis(milliseconds);
        assert!(writer.reports(later(900)).is_empty());
        assert_eq!(texts(&writer.reports(later(1_000))), ["T rule 3 web: 1 packet more"]);
        assert!(writer.reports(later(2_000)).is_empty());
        assert!(writer.active.is_empty());
    }
}
