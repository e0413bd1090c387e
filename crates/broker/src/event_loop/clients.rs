//! Clients: how they come, what they need, and how they go.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use mio::Interest;
use mio::net::TcpStream;
use mmb_nf::{Peer, Refusal};

use super::{ACCEPT_PAUSE, EventLoop, client_token};
use crate::counters::Count;
use crate::exchange::{Client, Failure, Pair, Phase, Step};
use crate::io::{Channel, HOLD, Owner, Timer};
use crate::settings::{LINGER, PARTING};

/// Bytes of an IPv6 address that a site chooses.
const HOST_BITS: u128 = u64::MAX as u128;

/// Returns what the limit of a source counts: an address, or a network of IPv6.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !HOST_BITS).into(),
        address => address,
    }
}

impl EventLoop<'_> {
    /// Accepts the connections that wait, up to the limit.
    pub(super) fn accept(&mut self) {
        if self.accept_at.take_if(|at| *at <= self.common.now).is_some() {
            self.can_accept = true;
        }
        while self.can_accept
            && self.accept_at.is_none()
            && self.clients.len() < self.common.settings.connections
        {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((socket, address)) => self.admit(socket, address),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.can_accept = false,
                // The client has left already.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => self.accept_at = Some(self.common.now + ACCEPT_PAUSE),
            }
        }
    }

    fn admit(&mut self, mut socket: TcpStream, address: SocketAddr) {
        let counters = &self.common.counters;
        let held = self.sources.entry(source(address.ip())).or_default();
        if *held >= self.common.settings.source_connections {
            return counters.add(Count::Limited);
        }
        let Ok(broker) = socket.local_addr() else { return };
        // Small answers do not wait for the acknowledgement of those before.
        let _ = socket.set_nodelay(true);
        let entry = self.clients.vacant_entry();
        let (key, registry) = (entry.key(), self.poll.registry());
        let both = Interest::READABLE | Interest::WRITABLE;
        if registry.register(&mut socket, client_token(key), both).is_err() {
            return;
        }
        *held += 1;
        counters.add(Count::Accepted);
        counters.add(Count::Clients);
        self.next_uid += 1;
        // A socket of both families has IPv4 addresses in the form of IPv6.
        let [client, broker] =
            [address, broker].map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()));
        let (peer, timer) = (Peer { client, broker }, Timer::new(self.next_uid));
        entry.insert(Client::new(Channel::new(socket, true), peer, timer, &self.common));
        self.arm(key);
    }

    /// Gives a client a turn, unless it waits for one in the queue.
    pub(super) fn drive(&mut self, key: usize) {
        self.common.begin_turn();
        loop {
            let Some(client) = self.clients.get_mut(key).filter(|client| !client.is_queued) else { return };
            let server = client.exchange.server.and_then(|number| self.servers.get_mut(number));
            match (Pair { client, server, common: &mut self.common }).step() {
                Step::Wait => break,
                Step::Yield => {
                    client.is_queued = true;
                    self.queue.push_back(key);
                    break;
                }
                Step::Connect => self.connect(key),
                Step::Release { keep } => self.release(key, keep, false),
                Step::Failed(failure) => self.failed(key, failure),
                Step::Close if self.refuse(key) => {}
                Step::Close => return self.close(key),
            }
        }
        if let Some(client) = self.clients.get_mut(key) {
            client.channel.rest(&mut self.common.pool);
        }
        self.arm(key);
    }

    /// Gives those clients another turn that could not finish in theirs.
    pub(super) fn drive_queued(&mut self) {
        // Their messages are short, and many.
        self.common.sends_later = !self.queue.is_empty();
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { return };
            if let Some(client) = self.clients.get_mut(key) {
                client.is_queued = false;
            }
            self.drive(key);
            self.unsent.push(key);
        }
        self.send_unsent();
    }

    /// Does what a function has decided about a connection. True: the client reads the end of the connection.
    fn refuse(&mut self, key: usize) -> bool {
        let Some(client) = self.clients.get_mut(key) else { return false };
        let Some(refusal) = client.channel.refusal() else { return false };
        self.common.counters.add(Count::Refused);
        if refusal == Refusal::Reset {
            return false;
        }
        client.channel.output.clear();
        client.channel.set_filter(None);
        client.channel.shut();
        client.linger(&self.common);
        self.release(key, false, false);
        true
    }

    /// A client gets the page of a status.
    pub(super) fn answer_status(&mut self, key: usize, status: u16) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let server = client.exchange.server.and_then(|number| self.servers.get_mut(number));
        (Pair { client, server, common: &mut self.common }).refuse(status);
    }

    /// Sets the deadline of a client.
    fn arm(&mut self, key: usize) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let settings = &self.common.settings;
        let server = client.exchange.server.and_then(|number| self.servers.get(number));
        let patience = match client.phase {
            Phase::Idle if !client.channel.output.is_empty() => settings.response_timeout,
            Phase::Idle if self.common.is_stopping => settings.idle_timeout.min(PARTING),
            Phase::Idle => settings.idle_timeout,
            Phase::Head => settings.header_timeout,
            Phase::Exchange if server.is_some_and(|server| !server.is_ready) => settings.connect_timeout,
            Phase::Exchange | Phase::Closing => settings.response_timeout,
            Phase::Tunnel => settings.tunnel_timeout,
            Phase::Linger => LINGER,
        };
        let mut deadline = client.since.saturating_add(patience);
        if matches!(client.phase, Phase::Exchange | Phase::Tunnel) && client.channel.is_holding() {
            let (receptions, now) = (client.channel.receptions, self.common.now);
            let held = client.held.filter(|(before, _)| *before == receptions).unwrap_or((receptions, now));
            client.held = Some(held);
            deadline = deadline.min(held.1 + HOLD);
        } else {
            client.held = None;
        }
        self.timers.set(Owner::Client(key), &mut client.timer, deadline);
    }

    /// A deadline of a client has come.
    pub(super) fn client_expired(&mut self, key: usize) {
        if let Some(client) = self.clients.get_mut(key)
            && client.held.take().is_some_and(|(_, since)| since + HOLD <= self.common.now)
        {
            client.channel.release();
            return self.drive(key);
        }
        let Some(client) = self.clients.get(key) else { return };
        let exchange = &client.exchange;
        let server = exchange.server.and_then(|number| self.servers.get(number));
        let counters = &self.common.counters;
        match client.phase {
            Phase::Head => {
                counters.add(Count::ClientTimeouts);
                self.answer_status(key, 408);
            }
            Phase::Exchange if exchange.is_answered => {
                let waits_for_client = !client.channel.output.is_empty();
                counters.add(if waits_for_client { Count::ClientTimeouts } else { Count::ServerTimeouts });
                return self.close(key);
            }
            Phase::Exchange => {
                let is_ready = server.is_some_and(|server| server.is_ready);
                let has_all = server.is_some_and(|server| server.channel.output.is_empty());
                if is_ready && has_all && !exchange.is_received() {
                    counters.add(Count::ClientTimeouts);
                    self.answer_status(key, 408);
                } else {
                    counters.add(Count::ServerTimeouts);
                    self.failed(key, if is_ready { Failure::Timeout } else { Failure::ConnectTimeout });
                }
            }
            Phase::Closing => {
                counters.add(Count::ClientTimeouts);
                return self.close(key);
            }
            Phase::Idle | Phase::Tunnel | Phase::Linger => return self.close(key),
        }
        self.drive(key);
    }

    /// Ends the connection of a client, and that to its server.
    pub(super) fn close(&mut self, key: usize) {
        self.release(key, false, false);
        let Some(mut client) = self.clients.try_remove(key) else { return };
        self.reset_if_needed(&mut client);
        client.finish_exchange(&self.common.counters);
        self.close_owned(&client);
        client.channel.output.clear();
        client.channel.rest(&mut self.common.pool);
        self.common.counters.subtract(Count::Clients);
        let source = source(client.peer.client.ip());
        if let Some(held) = self.sources.get_mut(&source) {
            *held -= 1;
            if *held == 0 {
                self.sources.remove(&source);
            }
        }
    }

    /// The connection of a client that is about to be closed ends with a reset, if it has to.
    pub(super) fn reset_if_needed(&mut self, client: &mut Client) {
        if client.needs_reset() {
            // The daemon may have the socket a little longer, so that closing it would not end its events.
            let _ = self.poll.registry().deregister(&mut client.channel.socket);
            self.environment.reset_on_close(&client.channel.socket);
        }
    }

    /// Gives connections without a request the deadline that they have now.
    pub(super) fn arm_idle(&mut self) {
        let is_idle = |client: &Client| client.phase == Phase::Idle;
        let idle: Vec<_> =
            self.clients.iter().filter(|(_, client)| is_idle(client)).map(|(key, _)| key).collect();
        idle.into_iter().for_each(|key| self.arm(key));
    }
}
