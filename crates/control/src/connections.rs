//! Listing and clearing sessions.
//!
//! Theory of operation. The engine gives sessions in chunks of some hundreds, each in answer to a call that a worker needs
//! microseconds for. A listing filters, writes and forgets chunk after chunk, so that its memory does not grow with the
//! table, and the writer's pace is the reader's. It is no snapshot: sessions come and go meanwhile.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_dataplane::{Connection, ConnectionCursor, ConnectionId, MAX_PORTS, PortId};
use mmb_flow::Key;
use mmb_lang::Match;
use mmb_packet::Kind;
use mmb_policy::Batch;

use crate::api::{ClearReply, ConnectionEntry, FlowEntry};
use crate::config::Config;
use crate::control::Control;
use crate::error::Fault;
use crate::filter::Filter;
use crate::render::{ConnectionColumns, count};

/// What `show connections` lists, to be written by [`Control::write_connections`].
#[derive(Clone, Debug)]
pub struct Listing {
    filter: Option<Filter>,
    verbose: bool,
    names: Vec<String>,
    /// Why there are none, if there are none and it is no chance.
    why_none: Option<&'static str>,
}

/// Milliseconds in a second.
const SECOND: u32 = 1000;

/// What to say of no sessions where none can be.
const NOT_STATEFUL: &str = "no connections: the policy is stateless; `add-stateful` rules open sessions\n";

impl Control {
    /// `show connections`: what is wrong with it is found here, the rest is done by [`Control::write_connections`].
    pub(crate) fn listing(&self, matches: &[Match], verbose: bool) -> Result<Listing, Fault> {
        let config = self.present().config;
        Ok(Listing {
            filter: Filter::new(matches, &config)?,
            verbose,
            names: interface_names(&config),
            why_none: (!has_sessions(&config)).then_some(NOT_STATEFUL),
        })
    }

    /// Writes a listing for people.
    pub(crate) fn write_connections(&self, listing: &Listing, out: &mut dyn Write) -> io::Result<()> {
        let mut columns = ConnectionColumns::new(listing.verbose);
        self.chunks(listing.filter.as_ref(), |chunk| {
            chunk.iter().for_each(|c| columns.row(&entry(c, &listing.names)));
            out.write_all(columns.flush().as_bytes())
        })?;
        if columns.is_empty() {
            out.write_all(listing.why_none.unwrap_or("no connections\n").as_bytes())?;
        }
        Ok(())
    }

    /// Writes a listing as a [`crate::api::ConnectionList`], one connection a line.
    pub(crate) fn write_connections_json(
        &self,
        listing: &Listing,
        mut out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut separator = "\n";
        out.write_all(b"{\"connections\":[")?;
        self.chunks(listing.filter.as_ref(), |chunk| {
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
    pub(crate) fn clear_connections(&self, matches: &[Match]) -> Result<ClearReply, Fault> {
        let filter = Filter::new(matches, &self.present().config)?;
        let mut cleared = 0;
        // Nothing is written, so nothing fails.
        let _ = self.chunks(filter.as_ref(), |chunk| {
            let ids: Vec<_> = chunk.iter().map(ConnectionId::from).collect();
            cleared += self.engine().clear(&ids) as u64;
            Ok(())
        });
        Ok(ClearReply { done: format!("{} ended", count(cleared, "connection")), cleared })
    }

    /// Calls `each` for the sessions that are meant, some at a time.
    fn chunks(
        &self,
        filter: Option<&Filter>,
        mut each: impl FnMut(&[Connection]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut cursor, mut chunk, mut batch) =
            (ConnectionCursor::default(), Vec::new(), filter.map(|_| Batch::default()));
        while self.engine().connections(&mut cursor, &mut chunk) {
            if let (Some(filter), Some(batch)) = (filter, batch.as_mut()) {
                filter.retain(&mut chunk, batch);
            }
            each(&chunk)?;
            chunk.clear();
        }
        Ok(())
    }
}

/// Whether packets may open sessions.
fn has_sessions(config: &Config) -> bool {
    config.policy().is_stateful() || !config.nat().compiled().is_empty()
}

/// Names of interfaces by port.
pub(crate) fn interface_names(config: &Config) -> Vec<String> {
    let mut names = vec![String::new(); MAX_PORTS];
    for i in config.interfaces() {
        if let Some(name) = i.id.index().and_then(|at| names.get_mut(at)) {
            name.clone_from(&i.name);
        }
    }
    names
}

fn entry(view: &Connection, names: &[String]) -> ConnectionEntry {
    let seconds = |milliseconds: u32| u64::from(milliseconds / SECOND);
    let flow = |key: &Key, way: usize| {
        let ports = has_ports(key);
        FlowEntry {
            source: address(key, &key.source),
            source_port: ports.then_some(u16::from_be_bytes(key.source_port)),
            destination: address(key, &key.destination),
            destination_port: ports.then_some(u16::from_be_bytes(key.destination_port)),
            in_: interface(view.in_port[way], names),
            packets: view.packets[way],
            bytes: view.bytes[way],
        }
    };
    ConnectionEntry {
        protocol: protocol(view.original.proto),
        state: Cow::Borrowed(view.state),
        forward: flow(&view.original, 0),
        reverse: flow(&view.reply, 1),
        translated: view.reply != view.original.reversed(),
        age_seconds: seconds(view.age),
        idle_seconds: seconds(view.idle),
        expires_seconds: seconds(view.expires),
        rules: view.rules.clone(),
        chain: view.chain.as_deref().map(str::to_owned),
        refused: view.refused.map(|reason| reason.name().to_owned()),
        worker: u64::from(view.worker),
        uid: view.uid,
    }
}

fn interface(port: u16, names: &[String]) -> Option<String> {
    let name = names.get(PortId(port).index()?)?;
    (!name.is_empty()).then(|| name.clone())
}

fn protocol(number: u8) -> Cow<'static, str> {
    mmb_lang::protocol_name(number).map_or_else(|| number.to_string().into(), Cow::Borrowed)
}

fn address(key: &Key, bytes: &[u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = *bytes;
    if key.is_ip4() { Ipv4Addr::new(a, b, c, d).into() } else { Ipv6Addr::from(*bytes).into() }
}

/// Whether the key has ports or what stands for them. Those of ICMP messages that are no queries are zero.
fn has_ports(key: &Key) -> bool {
    match Kind(key.kind).l4() {
        Kind::TCP | Kind::UDP => true,
        Kind::ICMP | Kind::ICMP6 => (key.source_port, key.destination_port) != ([0; 2], [0; 2]),
        _ => false,
    }
}
