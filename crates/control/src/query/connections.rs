//! Listing and clearing sessions.
//!
//! Theory of operation. The engine returns sessions in chunks of some hundreds. Each chunk is the answer of a
//! worker that needs microseconds for it. A listing filters, writes and drops one chunk after the other. Its
//! memory does not grow with the table, and it goes on as fast as the reader reads. It is not a snapshot:
//! sessions open and end meanwhile.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_dataplane::{Connection, ConnectionCursor, ConnectionId, PortId};
use mmb_flow::Key;
use mmb_lang::{Match, SessionName};
use mmb_packet::Kind;
use mmb_policy::Batch;

use super::filter::SessionFilter;
use super::ports::PortNames;
use crate::api::{ClearReply, ConnectionEntry, FlowEntry};
use crate::config::Config;
use crate::error::CommandError;
use crate::render::ConnectionColumns;
use crate::text::count;
use crate::transaction::Control;

/// The sessions of `show connections`, read while they are written.
#[derive(Clone, Debug)]
pub struct ConnectionListing {
    filter: Option<SessionFilter>,
    verbose: bool,
    names: PortNames,
    /// Whether rules or NAT can open sessions.
    has_sessions: bool,
}

/// Milliseconds in a second.
const SECOND: u32 = 1000;

/// The text where no rule can open sessions.
const NOT_STATEFUL: &str = "no connections: the policy is stateless; `add-stateful` rules open sessions\n";

impl Control {
    /// `show connections`. Checks the matches; [`Control::write_connections`] reads the sessions.
    pub(crate) fn connection_listing(
        &self,
        matches: &[Match],
        verbose: bool,
    ) -> Result<ConnectionListing, CommandError> {
        let config = self.state().config;
        Ok(ConnectionListing {
            filter: SessionFilter::new(matches, &config)?,
            verbose,
            names: PortNames::of(&config),
            has_sessions: has_sessions(&config),
        })
    }

    /// Writes a listing as text.
    pub(crate) fn write_connections(
        &self,
        listing: &ConnectionListing,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut columns = ConnectionColumns::new(listing.verbose);
        self.for_each_chunk(listing.filter.as_ref(), |chunk| {
            chunk.iter().for_each(|c| columns.row(&entry(c, &listing.names)));
            out.write_all(columns.flush().as_bytes())
        })?;
        if columns.is_empty() {
            let text = if listing.has_sessions { "no connections\n" } else { NOT_STATEFUL };
            out.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// Writes a listing as a [`crate::api::ConnectionList`], one connection per line.
    pub(crate) fn write_connections_json(
        &self,
        listing: &ConnectionListing,
        mut out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut separator = "\n";
        out.write_all(b"{\"connections\":[")?;
        self.for_each_chunk(listing.filter.as_ref(), |chunk| {
            for c in chunk {
                out.write_all(separator.as_bytes())?;
                serde_json::to_writer(&mut out, &entry(c, &listing.names))?;
                separator = ",\n";
            }
            Ok(())
        })?;
        out.write_all(b"]}")
    }

    /// `clear connections`.
    pub(crate) fn clear_connections(&self, matches: &[Match]) -> Result<ClearReply, CommandError> {
        let filter = SessionFilter::new(matches, &self.state().config)?;
        let mut cleared = 0;
        // The closure writes nothing and returns no error.
        let _ = self.for_each_chunk(filter.as_ref(), |chunk| {
            let ids: Vec<_> = chunk.iter().map(ConnectionId::from).collect();
            cleared += self.engine().clear(&ids) as u64;
            Ok(())
        });
        Ok(ClearReply { done: format!("{} ended", count(cleared, "connection")), cleared })
    }

    /// Calls `visit` with the sessions that pass the filter, chunk by chunk.
    fn for_each_chunk(
        &self,
        filter: Option<&SessionFilter>,
        mut visit: impl FnMut(&[Connection]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut cursor, mut chunk, mut batch) =
            (ConnectionCursor::default(), Vec::new(), filter.map(|_| Batch::default()));
        while self.engine().connections(&mut cursor, &mut chunk) {
            if let (Some(filter), Some(batch)) = (filter, batch.as_mut()) {
                filter.retain(&mut chunk, batch);
            }
            visit(&chunk)?;
            chunk.clear();
        }
        Ok(())
    }
}

/// Whether there can be sessions.
fn has_sessions(config: &Config) -> bool {
    config.policy().is_stateful()
        || !config.nat().compiled().is_empty()
        || config.chains().program().may_have_offsets()
}

/// A session as a document.
pub(super) fn entry(view: &Connection, names: &PortNames) -> ConnectionEntry {
    let seconds = |milliseconds: u32| u64::from(milliseconds / SECOND);
    let flow = |key: &Key, direction: usize| {
        let ports = has_ports(key);
        FlowEntry {
            source: address(key, &key.source),
            source_port: ports.then_some(u16::from_be_bytes(key.source_port)),
            destination: address(key, &key.destination),
            destination_port: ports.then_some(u16::from_be_bytes(key.destination_port)),
            in_: names.get(PortId(view.in_port[direction])),
            packets: view.packets[direction],
            bytes: view.bytes[direction],
        }
    };
    ConnectionEntry {
        protocol: protocol(view.original.proto),
        state: view.state.into(),
        forward: flow(&view.original, 0),
        reverse: flow(&view.reply, 1),
        translated: view.reply != view.original.reversed(),
        age_seconds: seconds(view.age),
        idle_seconds: seconds(view.idle),
        expires_seconds: seconds(view.expires),
        rules: view.rules.clone(),
        chain: view.chain.as_deref().map(str::to_owned),
        refused: view.refused.map(|reason| reason.name().to_owned()),
        functions: view.functions.iter().cloned().collect(),
        id: name(view).to_string(),
        worker: u64::from(view.worker),
        uid: view.uid,
    }
}

/// The name of a session in the language.
pub(super) fn name(view: &Connection) -> SessionName {
    SessionName { worker: view.worker, number: view.id.0, uid: view.uid }
}

fn protocol(number: u8) -> Cow<'static, str> {
    mmb_lang::protocol_name(number).map_or_else(|| number.to_string().into(), Cow::from)
}

pub(super) fn address(key: &Key, bytes: &[u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = *bytes;
    if key.is_ip4() { Ipv4Addr::new(a, b, c, d).into() } else { Ipv6Addr::from(*bytes).into() }
}

/// Whether the key has ports, or ICMP's identifier and type in their place. The latter are zero unless the
/// message is a query.
fn has_ports(key: &Key) -> bool {
    match Kind(key.kind).l4() {
        Kind::TCP | Kind::UDP => true,
        Kind::ICMP | Kind::ICMP6 => (key.source_port, key.destination_port) != ([0; 2], [0; 2]),
        _ => false,
    }
}
