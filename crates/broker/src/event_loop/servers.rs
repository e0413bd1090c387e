//! Connections to servers: which one a request gets, and which ones are kept.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;

use mio::Interest;
use mio::net::TcpStream;

use super::{EventLoop, server_token};
use crate::counters::Count;
use crate::exchange::{Failure, Server};
use crate::io::{Channel, Owner, Timer};
use crate::settings::{SERVER_IDLE, SERVER_KEPT};

/// Connections without a request, by the address of their server.
#[derive(Debug, Default)]
pub(crate) struct KeptServers(HashMap<SocketAddr, Vec<usize>>);

impl KeptServers {
    /// Takes the connection that was used last.
    fn take(&mut self, address: SocketAddr) -> Option<usize> {
        self.0.get_mut(&address)?.pop()
    }

    /// Keeps a connection. False: enough are kept.
    fn keep(&mut self, address: SocketAddr, key: usize) -> bool {
        let kept = self.0.entry(address).or_default();
        if kept.len() >= SERVER_KEPT {
            return false;
        }
        kept.push(key);
        true
    }

    fn forget(&mut self, address: SocketAddr, key: usize) {
        if let Some(kept) = self.0.get_mut(&address) {
            kept.retain(|other| *other != key);
            if kept.is_empty() {
                self.0.remove(&address);
            }
        }
    }
}

impl EventLoop {
    /// Finds a server for the request of a client. Without one, the client is answered.
    pub(super) fn connect(&mut self, key: usize) {
        loop {
            let Some(client) = self.clients.get_mut(key) else { return };
            let exchange = &mut client.exchange;
            let Some(upstream) = exchange.upstream.clone() else { return self.answer_status(key, 503) };
            let Some(chosen) = upstream.choose(client.peer.client.ip(), &exchange.tried) else {
                let status = if exchange.tried.is_empty() { 503 } else { 502 };
                return self.answer_status(key, status);
            };
            upstream.begin(chosen.number);
            exchange.chosen = Some(chosen.number);
            client.since = self.common.now;
            if self.reuse(key, chosen.address) || self.open(key, chosen.address) {
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
    fn reuse(&mut self, client: usize, address: SocketAddr) -> bool {
        while let Some(number) = self.kept.take(address) {
            // A request that cannot be repeated should not meet a connection that the server has closed.
            let can_repeat = self.clients.get(client).is_some_and(|client| client.can_repeat(true));
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
    fn open(&mut self, client: usize, address: SocketAddr) -> bool {
        let Ok(mut socket) = TcpStream::connect(address) else { return false };
        let _ = socket.set_nodelay(true);
        let uid = self.uid();
        let entry = self.servers.vacant_entry();
        let (number, registry) = (entry.key(), self.poll.registry());
        let both = Interest::READABLE | Interest::WRITABLE;
        if registry.register(&mut socket, server_token(number), both).is_err() {
            return false;
        }
        entry.insert(Server::new(Channel::new(socket, false), address, Timer::new(uid), client));
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
        let Some(server) = self.servers.get_mut(number) else { return };
        server.client = None;
        if keep && !self.common.is_stopping && self.kept.keep(server.address, number) {
            server.channel.rest(&mut self.common.pool);
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

    /// Ends a connection to a server.
    pub(super) fn close_server(&mut self, number: usize) {
        let Some(mut server) = self.servers.try_remove(number) else { return };
        self.kept.forget(server.address, number);
        server.channel.output.clear();
        server.channel.rest(&mut self.common.pool);
        self.common.counters.subtract(Count::Servers);
    }
}
