//! The thread that exports records.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::ipfix::{Encoder, PER_MESSAGE};
use super::record::{Flow, Record};
use crate::shared::export_queue::{ExportError, ExportQueue};
use crate::shared::log_file::LogFile;
use mmb_nf::ArgError;
use mmb_nf::StopSignal;

/// Interval at which templates are sent again: UDP may lose them, and collectors restart (RFC 7011, 8.4).
const TEMPLATES: Duration = Duration::from_secs(60);
/// Interval at which a collector that was not found is looked up again.
const RETRY: Duration = Duration::from_secs(10);

/// Checks that an argument has the form `HOST:PORT`, with IPv6 addresses in brackets.
///
/// # Errors
/// The form that is expected.
pub(super) fn collector(word: &str) -> Result<String, ArgError> {
    let expected = "must be HOST:PORT, such as `10.0.0.9:4739` or `[2001:db8::9]:4739`";
    let wrong = || ArgError::invalid("collector", word, expected);
    let (host, port) = word.rsplit_once(':').ok_or_else(wrong)?;
    let has_brackets = host.starts_with('[') && host.ends_with(']');
    let host_fits = !host.is_empty() && (has_brackets || !host.contains([':', '[', ']']));
    match port.parse() {
        Ok(1..=u16::MAX) if host_fits => Ok(word.into()),
        _ => Err(wrong()),
    }
}

/// Appends records to a file, a line of JSON each.
pub(super) fn json(outbox: &ExportQueue<Record>, lines: &LogFile, stop: &StopSignal) {
    outbox.serve(stop, |items| {
        let records = items.len();
        let text: String =
            items.into_iter().map(|(times, record)| Flow::new(&times, record).json()).collect();
        outbox.record(records, lines.append(&text));
    });
}

/// Sends records to a collector, as IPFIX over UDP.
pub(super) fn ipfix(outbox: &ExportQueue<Record>, collector: &str, stop: &StopSignal) {
    let mut sender = Sender {
        collector,
        socket: Err(ExportError::NotTried),
        looked: None,
        encoder: Encoder::default(),
        told: None,
    };
    outbox.serve(stop, |items| {
        let flows: Vec<_> = items.into_iter().map(|(times, record)| Flow::new(&times, record)).collect();
        for flows in flows.chunks(PER_MESSAGE) {
            outbox.record(flows.len(), sender.send(flows));
        }
    });
}

struct Sender<'a> {
    collector: &'a str,
    /// The socket and the address of the collector, or why there is none.
    socket: Result<(UdpSocket, SocketAddr), ExportError>,
    /// When the collector was looked up.
    looked: Option<Instant>,
    encoder: Encoder,
    /// When templates were sent.
    told: Option<Instant>,
}

impl Sender<'_> {
    fn send(&mut self, flows: &[Flow]) -> Result<(), ExportError> {
        if self.socket.is_err() && self.looked.is_none_or(|then| then.elapsed() >= RETRY) {
            self.looked = Some(Instant::now());
            self.socket = connect(self.collector);
        }
        let (socket, to) = self.socket.as_ref().map_err(Clone::clone)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The format has 32 bits for it.
        let time = since.as_secs() as u32;
        let send = |message: Vec<u8>| {
            let sent = socket.send_to(&message, to);
            sent.map(drop)
                .map_err(|error| ExportError::Send { target: to.to_string(), error: error.to_string() })
        };
        if self.told.is_none_or(|then| then.elapsed() >= TEMPLATES) {
            send(self.encoder.templates(time)?)?;
            self.told = Some(Instant::now());
        }
        send(self.encoder.data(time, flows)?)
    }
}

/// Opens a socket for messages to `HOST:PORT`.
fn connect(collector: &str) -> Result<(UdpSocket, SocketAddr), ExportError> {
    let not_found = |error: std::io::Error| ExportError::Resolve {
        collector: collector.to_owned(),
        error: error.to_string(),
    };
    let to = collector.to_socket_addrs().map_err(not_found)?.next();
    let to = to.ok_or_else(|| ExportError::NoAddress { collector: collector.to_owned() })?;
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).map_err(|error| ExportError::Socket { error: error.to_string() })?;
    Ok((socket, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors() {
        for good in ["10.0.0.9:4739", "[2001:db8::9]:4739", "collector.example:2055", "localhost:1"] {
            assert_eq!(collector(good), Ok(good.to_string()));
        }
        for wrong in [
            "",
            ":",
            "10.0.0.9",
            "10.0.0.9:",
            ":4739",
            "10.0.0.9:0",
            "10.0.0.9:65536",
            "2001:db8::9:4739",
            "[::1:5",
        ] {
            assert!(
                collector(wrong).is_err_and(|said| said.to_string().contains("invalid collector")),
                "{wrong}"
            );
        }
    }
}
