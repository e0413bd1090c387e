//! The event loop of a broker: sockets, deadlines, limits and commands. It runs in a thread of the daemon or
//! in a process ([`Environment`]).
//!
//! Theory of operation. Events that come together are processed in two passes: the first receives and writes
//! messages anew, the second sends them. So the messages of a batch leave one after the other, and a program
//! that gets several of them wakes up once. Long messages are sent in the first pass, piece by piece.
//!
//! A client moves a bounded number of bytes and exchanges in a turn. One that could go on waits in a queue,
//! where each gets another turn behind the events, deadlines and new connections of the others, in two passes
//! as well. While there is a client in the queue, the thread does not sleep.

mod clients;
mod environment;
mod servers;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use mmb_system::log;
use slab::Slab;

use crate::chain::{Filters, LocalChain};
use crate::exchange::{Client, Common, Server};
use crate::io::{Owner, Timers};
use crate::settings::GRACE;

pub(crate) use environment::{Command, Done, Environment, ThreadEnvironment, connect};
pub(crate) use servers::KeptServers;

/// Events that are taken at a time.
const EVENTS: usize = 128;
/// How long no connection is accepted after the process had no descriptor or memory for one.
const ACCEPT_PAUSE: u64 = 500;

/// Tokens below [`FIRST`].
pub(crate) const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
/// Tokens from here on are those of clients (even) and of servers (odd).
const FIRST: usize = 2;

/// The state of the thread.
pub(crate) struct EventLoop<'e> {
    poll: Poll,
    environment: Box<dyn Environment + 'e>,
    /// None: the broker is being drained, or has paused.
    listener: Option<TcpListener>,
    /// Commands may wait.
    has_commands: bool,
    clients: Slab<Client>,
    servers: Slab<Server>,
    kept: KeptServers,
    /// Connections of each source.
    sources: HashMap<IpAddr, usize>,
    timers: Timers,
    common: Common,
    /// Clients whose messages are sent in the second pass.
    unsent: Vec<usize>,
    /// Clients that need another turn. Some may have left.
    queue: VecDeque<usize>,
    /// Connections may wait in the queue of the kernel.
    can_accept: bool,
    /// When connections are accepted again.
    accept_at: Option<u64>,
    /// When the drained broker ends.
    end_at: Option<u64>,
    next_uid: u64,
    started: Instant,
}

impl<'e> EventLoop<'e> {
    /// # Errors
    /// The socket cannot be registered.
    pub fn new(
        poll: Poll,
        mut listener: Option<TcpListener>,
        environment: Box<dyn Environment + 'e>,
        common: Common,
    ) -> io::Result<EventLoop<'e>> {
        if let Some(listener) = &mut listener {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        Ok(EventLoop {
            poll,
            environment,
            listener,
            has_commands: true,
            clients: Slab::new(),
            servers: Slab::new(),
            kept: KeptServers::default(),
            sources: HashMap::new(),
            timers: Timers::default(),
            common,
            unsent: Vec::new(),
            queue: VecDeque::new(),
            can_accept: true,
            accept_at: None,
            end_at: None,
            next_uid: 0,
            started: Instant::now(),
        })
    }

    /// Runs until the command to end, or until a drained broker has no client.
    ///
    /// # Errors
    /// Events cannot be received.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let limit = self.environment.begin_sleep();
            let patience = self.patience().into_iter().chain(limit).min();
            let polled = self.poll.poll(&mut events, patience);
            self.environment.end_sleep();
            match polled {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.common.now = self.started.elapsed().as_millis() as u64;
            self.process(&events);
            self.expire();
            self.accept();
            self.drive_queued();
            if !self.obey() || self.end_at.is_some_and(|at| self.clients.is_empty() || at <= self.common.now)
            {
                let clients = std::mem::take(&mut self.clients);
                clients.into_iter().for_each(|(_, mut client)| self.reset_if_needed(&mut client));
                return Ok(());
            }
        }
    }

    /// Returns how long the thread may sleep.
    fn patience(&self) -> Option<Duration> {
        if !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let next = self.timers.next().into_iter().chain(self.accept_at).chain(self.end_at).min()?;
        Some(Duration::from_millis(next.saturating_sub(self.common.now)))
    }

    /// Processes commands. False: the thread ends.
    fn obey(&mut self) -> bool {
        if !std::mem::take(&mut self.has_commands) {
            return true;
        }
        while let Some(command) = self.environment.next_command() {
            match command {
                Command::End => return false,
                Command::Update(functions, settings) => {
                    self.common.settings = settings;
                    self.common.chain = Rc::new(RefCell::new(LocalChain::new(&functions)));
                    self.common.filters = Rc::new(Filters::new(&functions));
                    self.can_accept = true;
                    self.accept();
                }
                Command::Pause(done) => {
                    self.stop_listening();
                    done();
                }
                Command::Resume(mut listener) => {
                    match self.poll.registry().register(&mut listener, LISTENER, Interest::READABLE) {
                        Ok(()) => (self.listener, self.can_accept) = (Some(listener), true),
                        Err(error) => log::error(format!("error: a broker cannot listen again: {error}\n")),
                    }
                    self.accept();
                }
                Command::Drain(done) => {
                    self.stop_listening();
                    // Nobody may wait for it any more.
                    done();
                    self.common.is_stopping = true;
                    self.end_at.get_or_insert(self.common.now + GRACE);
                    self.arm_idle();
                }
            }
        }
        true
    }

    /// Accepts no connections. Others may have the socket, so that closing it would not end its events.
    fn stop_listening(&mut self) {
        if let Some(mut listener) = self.listener.take() {
            let _ = self.poll.registry().deregister(&mut listener);
        }
    }

    /// Processes the events of a batch, in two passes if there are several.
    fn process(&mut self, events: &Events) {
        self.common.sends_later = events.iter().nth(1).is_some();
        for event in events {
            match event.token() {
                WAKER => self.has_commands = true,
                LISTENER => self.can_accept = true,
                Token(token) => self.on_event(token, event),
            }
        }
        self.send_unsent();
    }

    /// The second pass, if there is one.
    fn send_unsent(&mut self) {
        if std::mem::take(&mut self.common.sends_later) {
            let mut unsent = std::mem::take(&mut self.unsent);
            unsent.drain(..).for_each(|client| self.drive(client));
            self.unsent = unsent;
        }
    }

    fn on_event(&mut self, token: usize, event: &Event) {
        let key = (token - FIRST) / 2;
        let client = if token.is_multiple_of(2) {
            let Some(client) = self.clients.get_mut(key) else { return };
            client.channel.on_event(event);
            key
        } else {
            let Some(server) = self.servers.get_mut(key) else { return };
            server.channel.on_event(event);
            let Some(client) = server.client else { return self.check_kept(key) };
            client
        };
        self.drive(client);
        if self.common.sends_later {
            self.unsent.push(client);
        }
    }

    /// Ends what has waited too long.
    fn expire(&mut self) {
        let now = self.common.now;
        while let Some(entry) = self.timers.pop(now) {
            match entry.1 {
                Owner::Client(key) => {
                    let Some(client) = self.clients.get_mut(key) else { continue };
                    if self.timers.is_due(entry, &mut client.timer, now) {
                        self.client_expired(key);
                    }
                }
                Owner::Server(key) => {
                    let Some(server) = self.servers.get_mut(key) else { continue };
                    if self.timers.is_due(entry, &mut server.timer, now) && server.client.is_none() {
                        self.close_server(key);
                    }
                }
            }
        }
    }

    fn uid(&mut self) -> u64 {
        self.next_uid += 1;
        self.next_uid
    }
}

fn client_token(key: usize) -> Token {
    Token(FIRST + 2 * key)
}

fn server_token(key: usize) -> Token {
    Token(FIRST + 2 * key + 1)
}
