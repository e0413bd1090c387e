//! Connections to servers: which one a request gets, and which ones are kept.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;

use mio::Interest;
use mmb_nf::ProxyHeader;

use super::{EventLoop, server_token};
use crate::counters::Count;
use crate::exchange::{Client, Failure, Server};
use crate::io::{Channel, Owner, Timer};
use crate::settings::SERVER_IDLE;

/// For whom a connection is: the address of its server, and the only client that may use it.
type Use = (SocketAddr, Option<SocketAddr>);

/// The only client of a connection, and the header that tells the server so.
type Owned = Option<(SocketAddr, Option<ProxyHeader>)>;

/// Connections without a request, by their use. The one that was used last is the last one.
#[derive(Debug, Default)]
pub(crate) struct KeptServers(HashMap<Use, VecDeque<usize>>);

impl Server {
    fn usage(&self) -> Use {
        (self.address, self.owner.map(|(client, _)| client))
    }
}

impl KeptServers {
    /// Takes the connection that was used last.
    fn take(&mut self, usage: Use) -> Option<usize> {
        self.0.get_mut(&usage)?.pop_back()
    }

    /// Keeps a connection.
    fn keep(&mut self, usage: Use, key: usize) {
        self.0.entry(usage).or_default().push_back(key);
    }

    /// A connection is closed. Mostly it is the one that has not been used for the longest time.
    fn forget(&mut self, usage: Use, key: usize) {
        if let Some(kept) = self.0.get_mut(&usage) {
            if let Some(position) = kept.iter().position(|other| *other == key) {
                kept.remove(position);
            }
            if kept.is_empty() {
                self.0.remove(&usage);
            }
        }
    }
}

impl EventLoop<'_> {
    /// Finds a server for the request of a client. Without one, the client is answered.
    pub(super) fn connect(&mut self, key: usize) {
        loop {
            let Some(client) = self.clients.get_mut(key) else { return };
            let exchange = &mut client.exchange;
            let Some(upstream) = exchange.upstream.clone() else { return self.answer_status(key, 503) };
            let Some(chosen) = upstream.choose(client.peer.client.ip(), exchange.preferred, &exchange.tried)
            else {
                let status = if exchange.tried.is_empty() { 503 } else { 502 };
                return self.answer_status(key, status);
            };
            upstream.begin(chosen.number);
            exchange.chosen = Some(chosen.number);
            client.since = self.common.now;
            let header = upstream.proxy_header();
            let is_owned = header.is_some() || self.common.settings.keeps_source;
            let owner = is_owned.then_some((client.peer.client, header));
            if self.reuse(key, chosen.address, owner) || self.open(key, chosen.address, owner) {
                return;
            }
            self.release(key, false, true);
            if let Some(client) = self.clients.get_mut(key) {
                client.exchange.tried.push(chosen.number);
                if client.exchange.tried.len() > upstream.retries() {
                    self.common.counters.add(Count::Failed);
                    return self.answer_status(key, 502);
                }
            }
        }
    }

    /// Gives a client a connection that was kept. False: there is none.
    fn reuse(&mut self, client: usize, address: SocketAddr, owner: Owned) -> bool {
        while let Some(number) = self.kept.take((address, owner.map(|(client, _)| client))) {
            // A request that cannot be repeated, or not any more when its body has begun, should not meet a
            // connection that the server has closed.
            let can_repeat = self
                .clients
                .get(client)
                .is_some_and(|client| client.can_repeat(true) && !client.exchange.sends_body());
            let Some(server) = self.servers.get_mut(number) else { continue };
            let is_open = can_repeat
                || server
                    .channel
                    .socket
                    .peek(&mut [0])
                    .is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            if !is_open {
                self.close_server(number);
                continue;
            }
            (server.client, server.is_reused, server.is_ready) = (Some(client), true, false);
            self.timers.set(Owner::Server(number), &mut server.timer, u64::MAX);
            if let Some(client) = self.clients.get_mut(client) {
                client.exchange.server = Some(number);
            }
            self.common.counters.add(Count::Reused);
            return true;
        }
        false
    }

    /// Begins to open a connection. False: it cannot be opened.
    fn open(&mut self, client: usize, address: SocketAddr, owner: Owned) -> bool {
        let source = owner.map(|(client, _)| client.ip()).filter(|_| self.common.settings.keeps_source);
        let Some(one) = self.clients.get(client) else { return false };
        let connected = self.environment.connect(address, source, &one.channel.socket);
        let Ok(mut socket) = connected else { return false };
        let _ = socket.set_nodelay(true);
        let uid = self.uid();
        let entry = self.servers.vacant_entry();
        let (number, registry) = (entry.key(), self.poll.registry());
        let both = Interest::READABLE | Interest::WRITABLE;
        if registry.register(&mut socket, server_token(number), both).is_err() {
            return false;
        }
        let mut server = Server::new(Channel::new(socket, false), address, Timer::new(uid), client);
        server.owner = owner;
        entry.insert(server);
        if let Some(client) = self.clients.get_mut(client) {
            client.exchange.server = Some(number);
        }
        self.common.counters.add(Count::Connects);
        self.common.counters.add(Count::Servers);
        true
    }

    /// A client needs its server no more. `failed`: the server has not answered.
    pub(super) fn release(&mut self, client: usize, keep: bool, failed: bool) {
        let Some(client) = self.clients.get_mut(client) else { return };
        let exchange = &mut client.exchange;
        if let (Some(upstream), Some(chosen)) = (&exchange.upstream, exchange.chosen.take()) {
            upstream.end(chosen, failed);
        }
        let Some(number) = exchange.server.take() else { return };
        // Clients of a transparent broker can name any number of servers.
        let has_room = self.servers.len() <= self.common.settings.connections;
        let Some(server) = self.servers.get_mut(number) else { return };
        server.client = None;
        if keep && has_room && !self.common.is_stopping {
            self.kept.keep(server.usage(), number);
            server.channel.rest(&mut self.common.pool);
            if server.owner.is_some() && !client.owned.contains(&number) {
                client.owned.push(number);
            }
            let deadline = self.common.now + SERVER_IDLE;
            self.timers.set(Owner::Server(number), &mut server.timer, deadline);
        } else {
            self.close_server(number);
        }
    }

    /// A server has not answered a request. Another one gets it, if it can be repeated.
    pub(super) fn failed(&mut self, key: usize, failure: Failure) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let server = client.exchange.server.and_then(|number| self.servers.get(number));
        // A server may close a connection between two requests. This says nothing about it.
        let is_stale = failure == Failure::Ended && server.is_some_and(|server| server.is_reused);
        if let Some(chosen) = client.exchange.chosen.filter(|_| !is_stale) {
            client.exchange.tried.push(chosen);
        }
        let was_sent = !matches!(failure, Failure::Connect | Failure::ConnectTimeout);
        let retries = client.exchange.upstream.as_ref().map_or(0, |upstream| upstream.retries());
        let can_repeat = client.can_repeat(was_sent)
            && matches!(failure, Failure::Connect | Failure::ConnectTimeout | Failure::Ended)
            && client.exchange.tried.len() <= retries;
        self.release(key, false, !is_stale);
        if can_repeat {
            self.common.counters.add(Count::Retries);
            return;
        }
        self.common.counters.add(Count::Failed);
        let is_late = matches!(failure, Failure::ConnectTimeout | Failure::Timeout);
        self.answer_status(key, if is_late { 504 } else { 502 });
    }

    /// A connection without a request has an event: the server has closed it, or sends what nobody has asked
    /// for.
    pub(super) fn check_kept(&mut self, number: usize) {
        let Some(server) = self.servers.get(number) else { return };
        let has_more = server.channel.socket.peek(&mut [0]);
        if !has_more.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            self.close_server(number);
        }
    }

    /// A client has left: connections that were for it alone are not needed any more.
    pub(super) fn close_owned(&mut self, client: &Client) {
        for &number in &client.owned {
            // The number may be that of another connection by now.
            let owner = self.servers.get(number).and_then(|server| server.owner);
            if owner.is_some_and(|(owner, _)| owner == client.peer.client) {
                self.close_server(number);
            }
        }
    }

    /// Ends a connection to a server.
    pub(super) fn close_server(&mut self, number: usize) {
        let Some(mut server) = self.servers.try_remove(number) else { return };
        self.kept.forget(server.usage(), number);
        server.channel.output.clear();
        server.channel.rest(&mut self.common.pool);
        self.common.counters.subtract(Count::Servers);
    }
}
