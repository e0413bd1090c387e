//! The model of the mirror without a kernel: a test sends the datagrams.

use mmb_route::Routes;

use crate::model::{Model, l3_interfaces};
use crate::netlink::{decode, messages};
use crate::plane::RoutedPort;
use crate::query::{FibEntry, FibQuery};

/// Entries of a page of a query.
const PAGE: usize = 7;

/// What became of the messages of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Messages that changed the model or were irrelevant.
    pub decoded: usize,
    /// Messages that were skipped.
    pub malformed: usize,
}

/// The model.
pub struct MirroredState(Model);

impl Default for MirroredState {
    fn default() -> MirroredState {
        MirroredState(Model::new())
    }
}

impl MirroredState {
    /// Applies the messages of a datagram, as changes or as parts of a dump.
    pub fn receive(&mut self, datagram: &[u8], is_dump: bool) -> Received {
        let mut received = Received::default();
        for message in messages(datagram) {
            let event = decode(message.kind, message.flags, message.body, is_dump);
            match event {
                Ok(Some(event)) if is_dump => self.0.confirm(event),
                Ok(Some(event)) => self.0.apply(event),
                Ok(None) => {}
                Err(_) => {
                    received.malformed += 1;
                    continue;
                }
            }
            received.decoded += 1;
        }
        received
    }

    /// Begins a dump of the whole state.
    pub fn begin_dump(&mut self) {
        self.0.begin_dump();
    }

    /// Ends a dump of all classes: what was not reported is removed.
    pub fn end_dump(&mut self) {
        self.0.end_dump(|_| true);
    }

    /// Routes the packets of these kernel interfaces.
    pub fn set_ports(&mut self, interfaces: &[u32]) {
        self.0.set_ports(interfaces.iter().copied().zip(0..).collect());
    }

    /// The routes for publication.
    pub fn routes(&mut self, ports: &[RoutedPort]) -> Routes {
        let interfaces = l3_interfaces(&self.0, ports);
        self.0.publication(&interfaces).unwrap_or_else(|| self.0.routes(&interfaces))
    }

    /// All entries of the tables, in pages.
    pub fn entries(&self) -> Vec<FibEntry> {
        let mut query = FibQuery::default();
        let mut all = Vec::new();
        loop {
            let page = self.0.fib(&query, PAGE);
            all.extend(page.entries);
            query.after = page.next;
            if query.after.is_none() {
                return all;
            }
        }
    }
}

#[cfg(test)]
mod tests;
