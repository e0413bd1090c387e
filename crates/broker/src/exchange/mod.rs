//! Exchanges: a request of a client, and the response to it.
//!
//! Theory of operation. [`Pair`] is a client with the server of its exchange. [`Pair::step`] does everything
//! that can be done without another connection: it receives, parses, writes anew and sends, until each side
//! waits for a socket. What needs the other connections of the broker is returned as a [`Step`]. So is the
//! end of the client's turn ([`TURN`]): other clients wait meanwhile.

mod answer;
mod body;
mod head;
mod original;
mod request;
mod response;
mod tunnel;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use mmb_http::{Head, MessageHead, RequestClass, RequestReader, ResponseReader};
use mmb_nf::{ByteStreams, Follows, Instance, L7Finished, Peer, ProxyHeader, Refusal, Upstream};

use self::body::{BodyWriter, Framing};
pub(crate) use self::original::is_server;
use crate::chain::{Filters, LocalChain, SharedChain};
use crate::counters::{Count, Counters};
use crate::io::{BLOCK, Channel, Filter, Pool, Timer};
use crate::settings::Settings;

/// Most bytes of a head whose memory a connection keeps between requests.
const KEPT_HEAD: usize = 2048;

/// Bytes that are received for a client in a turn. A finished exchange counts as a block of them.
const TURN: usize = 16 * BLOCK;

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No request has begun.
    Idle,
    /// The head of a request is being read.
    Head,
    /// A request is being processed.
    Exchange,
    /// Both sides send what they like.
    Tunnel,
    /// The last bytes are being sent.
    Closing,
    /// What still comes is discarded, so that the client reads the answer before the end.
    Linger,
}

/// A client.
pub(crate) struct Client {
    pub channel: Channel,
    pub peer: Peer,
    pub phase: Phase,
    pub timer: Timer,
    /// When the phase began, or a byte was moved in it. For heads: when they began.
    pub since: u64,
    pub exchange: Exchange,
    reader: RequestReader,
    head: MessageHead,
    /// The host of the request, without its port.
    host: Vec<u8>,
    /// The connection is kept behind the exchange.
    pub keeps_open: bool,
    /// Kept connections to servers that are for this client only. Some may have ended.
    pub owned: Vec<usize>,
    /// The functions that its bytes pass.
    filters: Rc<Filters>,
    /// Receptions of the channel, and the time, when functions began to hold bytes back.
    pub held: Option<(u32, u64)>,
    /// It waits for its next turn.
    pub is_queued: bool,
}

/// The exchange of a client.
#[derive(Default)]
pub(crate) struct Exchange {
    pub id: u64,
    /// The chain with which the exchange has begun.
    chain: Option<SharedChain>,
    /// Functions that have seen the request.
    passed: usize,
    pub request: Option<Head>,
    /// The whole request was received.
    request_done: bool,
    /// Some of the body was received.
    has_body: bool,
    pub request_bytes: u64,
    pub upstream: Option<Arc<dyn Upstream>>,
    /// The server that the request names.
    pub preferred: Option<u16>,
    /// Servers that were tried.
    pub tried: Vec<u16>,
    /// The server for which the request counts.
    pub chosen: Option<u16>,
    /// The connection to it.
    pub server: Option<usize>,
    /// The head of the final response was written.
    pub is_answered: bool,
    pub response_done: bool,
    /// The response that is being read is an interim one.
    is_interim: bool,
    /// Writers of the bodies to the server and to the client.
    request_body: BodyWriter,
    response_body: BodyWriter,
    status: u16,
    response_bytes: u64,
}

/// A connection to a server.
pub(crate) struct Server {
    pub channel: Channel,
    pub address: SocketAddr,
    /// The only client that it is for, and the header that tells the server so.
    pub owner: Option<(SocketAddr, Option<ProxyHeader>)>,
    pub timer: Timer,
    /// The client whose request is under way.
    pub client: Option<usize>,
    /// Connected.
    pub is_ready: bool,
    /// The request was not the first one.
    pub is_reused: bool,
    reader: ResponseReader,
    head: MessageHead,
    /// The server keeps the connection open behind the response.
    keeps_open: bool,
    /// The message that is being read has no byte behind its head.
    ends_with_head: bool,
}

/// What all connections of a broker share.
pub(crate) struct Common {
    pub pool: Pool,
    pub settings: Settings,
    pub counters: Arc<Counters>,
    pub chain: SharedChain,
    /// The functions of the chain that the bytes of clients pass.
    pub filters: Rc<Filters>,
    /// Milliseconds since the broker began.
    pub now: u64,
    /// Bytes that the present turn has left.
    turn: usize,
    /// Other events are processed before short messages are sent.
    pub sends_later: bool,
    /// No connection is kept open.
    pub is_stopping: bool,
    pub next_exchange: u64,
    /// Clients have connected to addresses of others, which are the servers where the chain has none.
    pub is_transparent: bool,
}

impl Common {
    pub fn new(
        functions: &[Arc<Instance>],
        settings: Settings,
        counters: Arc<Counters>,
        is_transparent: bool,
    ) -> Common {
        Common {
            pool: Pool::default(),
            settings,
            counters,
            chain: Rc::new(RefCell::new(LocalChain::new(functions))),
            filters: Rc::new(Filters::new(functions)),
            now: 0,
            turn: 0,
            sends_later: false,
            is_stopping: false,
            next_exchange: 0,
            is_transparent,
        }
    }

    /// A turn of a client begins.
    pub fn begin_turn(&mut self) {
        self.turn = TURN;
    }

    /// Bytes were received in this turn.
    fn spend(&mut self, len: usize) {
        self.turn = self.turn.saturating_sub(len);
    }

    /// Bytes of a client were received.
    fn note_received(&mut self, len: usize) {
        self.counters.add_many(Count::ClientBytes, len as u64);
        self.spend(len);
    }

    /// Whether what a channel has to send waits until other events are processed.
    fn waits(&self, channel: &Channel) -> bool {
        self.sends_later && channel.output.len() < BLOCK
    }
}

/// Why a server has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It accepts no connection.
    Connect,
    /// It did not accept the connection in time.
    ConnectTimeout,
    /// The connection has ended.
    Ended,
    /// Its response is no HTTP/1.x.
    Invalid,
    /// It did not answer in time.
    Timeout,
}

/// What a client needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An event or a deadline.
    Wait,
    /// Another turn.
    Yield,
    /// A server.
    Connect,
    /// Its server is not needed any more; the connection to it can be kept or not.
    Release { keep: bool },
    /// Its server has failed.
    Failed(Failure),
    /// The end of its connection.
    Close,
}

/// What a part of a step has done.
enum Flow {
    /// Something.
    Moved,
    /// Nothing, since a socket is not ready.
    Blocked,
    /// Something is needed.
    Needs(Step),
}

/// A client, and the server of its exchange.
pub(crate) struct Pair<'a> {
    pub client: &'a mut Client,
    pub server: Option<&'a mut Server>,
    pub common: &'a mut Common,
}

impl Client {
    pub fn new(channel: Channel, peer: Peer, timer: Timer, common: &Common) -> Client {
        let mut client = Client::without_filters(channel, peer, timer, common.now);
        client.set_filters(&common.filters);
        client
    }

    /// Puts functions between the socket and the messages on it.
    fn set_filters(&mut self, filters: &Rc<Filters>) {
        self.filters = filters.clone();
        let streams = match &*filters.functions {
            [] => None,
            functions => ByteStreams::open(functions, self.peer.client, self.peer.broker),
        };
        self.channel.set_filter(streams.map(Filter::new));
    }

    fn without_filters(channel: Channel, peer: Peer, timer: Timer, now: u64) -> Client {
        Client {
            channel,
            peer,
            phase: Phase::Idle,
            timer,
            since: now,
            exchange: Exchange::default(),
            reader: RequestReader::default(),
            head: MessageHead::default(),
            host: Vec::new(),
            keeps_open: true,
            owned: Vec::new(),
            filters: Rc::default(),
            held: None,
            is_queued: false,
        }
    }

    fn enter(&mut self, phase: Phase, now: u64) {
        (self.phase, self.since) = (phase, now);
    }
}

impl Server {
    pub fn new(channel: Channel, address: SocketAddr, timer: Timer, client: usize) -> Server {
        Server {
            channel,
            address,
            owner: None,
            timer,
            client: Some(client),
            is_ready: false,
            is_reused: false,
            reader: ResponseReader::default(),
            head: MessageHead::default(),
            keeps_open: true,
            ends_with_head: false,
        }
    }
}

impl Exchange {
    fn class(&self) -> RequestClass {
        self.request.and_then(|head| head.request).unwrap_or_default()
    }

    /// Whether the whole request was received.
    pub fn is_received(&self) -> bool {
        self.request_done
    }

    /// Whether a body follows the head of the request.
    pub fn sends_body(&self) -> bool {
        self.request.is_some_and(|head| head.body.has_bytes())
    }

    /// Whether the request can be sent to another server. `was_sent`: a server may have processed it.
    fn can_repeat(&self, method: &[u8], was_sent: bool) -> bool {
        // RFC 9110, 9.2.2.
        const IDEMPOTENT: [&[u8]; 6] = [b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"];
        !self.is_answered && !self.has_body && (!was_sent || IDEMPOTENT.contains(&method))
    }
}

impl Client {
    /// Whether the end of the connection would look like the end of the response, which is not complete.
    pub fn is_cut(&self) -> bool {
        let Exchange { is_answered, response_done, response_body, .. } = &self.exchange;
        *is_answered && !*response_done && response_body.framing == Framing::UntilClose
    }

    /// Whether the end of the connection becomes a reset: a function wants that, or the response is not
    /// complete and its client could not tell (RFC 9112, 8).
    pub fn needs_reset(&self) -> bool {
        self.is_cut() || self.channel.refusal() == Some(Refusal::Reset)
    }

    /// Whether the request can be sent to another server.
    pub fn can_repeat(&self, was_sent: bool) -> bool {
        self.exchange.can_repeat(self.head.method(), was_sent)
    }

    /// The exchange is over, or will not be finished.
    pub fn finish_exchange(&mut self, counters: &Counters) {
        let exchange = std::mem::take(&mut self.exchange);
        let Some(chain) = exchange.chain else { return };
        if exchange.is_answered {
            counters.status(exchange.status);
        }
        let finished = L7Finished {
            exchange: exchange.id,
            status: if exchange.is_answered { exchange.status } else { 0 },
            request_bytes: exchange.request_bytes,
            response_bytes: exchange.response_bytes,
            is_complete: exchange.response_done,
        };
        chain.borrow_mut().finished(&finished, exchange.passed);
        let mut tried = exchange.tried;
        tried.clear();
        self.exchange.tried = tried;
    }
}

impl Pair<'_> {
    /// Does what can be done for the client.
    pub fn step(&mut self) -> Step {
        while self.common.turn > 0 {
            let flow = match self.client.phase {
                Phase::Idle | Phase::Head => self.read_head(),
                Phase::Exchange => self.exchange(),
                Phase::Tunnel => self.tunnel(),
                Phase::Closing => self.closing(),
                Phase::Linger => self.linger(),
            };
            match flow {
                Flow::Moved => {}
                Flow::Blocked => return Step::Wait,
                Flow::Needs(step) => return step,
            }
        }
        Step::Yield
    }

    /// Moves the bytes of an exchange in both directions.
    fn exchange(&mut self) -> Flow {
        if self.client.exchange.response_done {
            return self.end_exchange();
        }
        // A client that only sends no more waits for its response; nothing may ever be sent to this one.
        if self.client.channel.is_reset {
            return self.abort();
        }
        match &mut self.server {
            None => return Flow::Needs(Step::Connect),
            Some(server) if !server.is_ready => match server.check_connected() {
                Ok(true) => self.send_head(),
                Ok(false) => return Flow::Blocked,
                Err(failure) => return Flow::Needs(Step::Failed(failure)),
            },
            Some(_) => {}
        }
        let mut moved = false;
        for part in [Self::receive_request, Self::send_request, Self::receive_response, Self::send_response] {
            match part(self) {
                Flow::Moved => moved = true,
                Flow::Blocked => {}
                needs => return needs,
            }
        }
        if !moved {
            return Flow::Blocked;
        }
        self.client.since = self.common.now;
        Flow::Moved
    }

    /// The response is complete.
    fn end_exchange(&mut self) -> Flow {
        // The server may have answered before the end of the request was sent.
        if let Some(server) = &self.server
            && !server.channel.output.is_empty()
        {
            if self.common.waits(&server.channel) {
                return Flow::Blocked;
            }
            self.send_request();
        }
        let exchange = &self.client.exchange;
        if let Some(server) = &mut self.server {
            let keep = exchange.request_done
                && server.keeps_open
                && server.channel.output.is_empty()
                && server.reader.is_idle()
                && server.channel.is_silent(&mut self.common.pool);
            return Flow::Needs(Step::Release { keep });
        }
        let keeps_open = self.client.keeps_open && exchange.request_done && !self.common.is_stopping;
        self.client.finish_exchange(&self.common.counters);
        self.common.spend(BLOCK);
        // The client waits for what there is.
        self.client.channel.set_follows(Follows::Answer);
        self.client.head.clear(KEPT_HEAD);
        let phase = if keeps_open { Phase::Idle } else { Phase::Closing };
        self.client.enter(phase, self.common.now);
        Flow::Moved
    }

    /// Sends bytes to the client.
    fn send_response(&mut self) -> Flow {
        if self.common.waits(&self.client.channel) {
            return Flow::Blocked;
        }
        match self.client.channel.flush(&mut self.common.pool) {
            Ok(0) => Flow::Blocked,
            Ok(len) => {
                self.common.counters.add_many(Count::ResponseBytes, len as u64);
                Flow::Moved
            }
            Err(_) => self.abort(),
        }
    }

    /// The client has left.
    fn abort(&mut self) -> Flow {
        if self.client.phase == Phase::Exchange && self.client.channel.refusal().is_none() {
            self.common.counters.add(Count::Aborted);
        }
        Flow::Needs(Step::Close)
    }
}
