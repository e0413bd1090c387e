//! From the client to the server.

use std::rc::Rc;

use mmb_http::{Body, Cause, Event, Head, Target};
use mmb_nf::{L7Answer, L7Request, L7Verdict};

use super::answer::{status_of, write_answer};
use super::body::Framing;
use super::head::{connection, keeps_open, upgrade, write_request};
use super::original::Original;
use super::{Exchange, Flow, Pair, Phase, Step};
use crate::counters::Count;
use crate::io::Filled;

/// Most bytes of all Connection headers of a request.
const MOST_CONNECTION: usize = 1024;

impl Pair<'_> {
    /// Reads the head of a request.
    pub(super) fn read_head(&mut self) -> Flow {
        if let needs @ Flow::Needs(_) = self.send_response() {
            return needs;
        }
        if self.client.channel.output.is_full() {
            return Flow::Blocked;
        }
        if self.client.channel.input.is_empty() {
            self.renew_filters();
            match self.client.channel.fill(&mut self.common.pool) {
                Ok(Filled::Bytes(len)) => self.common.note_received(len),
                Ok(Filled::Nothing) => return Flow::Blocked,
                Ok(Filled::End) if !self.client.channel.output.is_empty() => {
                    self.client.enter(Phase::Closing, self.common.now);
                    return Flow::Moved;
                }
                Ok(Filled::End) | Err(_) => return Flow::Needs(Step::Close),
            }
        }
        if self.client.phase == Phase::Idle {
            self.client.enter(Phase::Head, self.common.now);
        }
        let client = &mut *self.client;
        let mut at = 0;
        let found = loop {
            let bytes = client.channel.input.bytes().get(at..).unwrap_or_default();
            let (len, event) = client.reader.next(bytes);
            at += len;
            match event {
                Event::More => break None,
                Event::Head(head) => break Some(Ok(head)),
                Event::Invalid(cause) => break Some(Err(cause)),
                event => client.head.push(&event),
            }
        };
        client.channel.input.consume(at);
        match found {
            None => Flow::Moved,
            Some(Ok(head)) => self.begin(head),
            Some(Err(cause)) => self.reject(cause),
        }
    }

    /// Between two requests, a client gets the functions that the chain has now.
    fn renew_filters(&mut self) {
        let (client, filters) = (&mut *self.client, &self.common.filters);
        let is_between = client.phase == Phase::Idle && !client.channel.is_holding();
        if is_between && !Rc::ptr_eq(&client.filters, filters) {
            client.set_filters(filters);
        }
    }

    /// The head of a request is complete.
    fn begin(&mut self, head: Head) -> Flow {
        let (client, common) = (&mut *self.client, &mut *self.common);
        common.counters.add(Count::Requests);
        common.next_exchange += 1;
        client.enter(Phase::Exchange, common.now);
        let tried = std::mem::take(&mut client.exchange.tried);
        client.exchange = Exchange {
            id: common.next_exchange,
            chain: Some(common.chain.clone()),
            request: Some(head),
            tried,
            ..Exchange::default()
        };
        client.keeps_open = keeps_open(&client.head, head.minor);
        if let Err(cause) = self.read_target() {
            return self.reject(cause);
        }
        let too_large = |len: u64| self.common.settings.body_limit.is_some_and(|most| len > most);
        match head.body {
            _ if head.request.unwrap_or_default().is_connect => {
                self.client.keeps_open = false;
                return self.answer_status(501);
            }
            Body::Length(len) if too_large(len) => return self.answer_status(413),
            _ => {}
        }
        let client = &mut *self.client;
        // The response tells whether the protocol is switched, which the request has to have asked for.
        let class = head.request.unwrap_or_default();
        let class = mmb_http::RequestClass { has_upgrade: upgrade(&client.head).is_some(), ..class };
        let head = Head { request: Some(class), ..head };
        client.exchange.request = Some(head);
        let mut request = L7Request {
            exchange: client.exchange.id,
            peer: client.peer,
            message: &mut client.head,
            head,
            host: &client.host,
        };
        let chain = self.common.chain.clone();
        let (verdict, passed) = chain.borrow_mut().request(&mut request);
        client.exchange.passed = passed;
        match verdict {
            L7Verdict::Pass => {
                let own = chain.borrow().upstream();
                let original = || self.common.is_transparent.then(|| Original::upstream(client.peer.broker));
                client.exchange.upstream = own.or_else(original);
                let upstream = client.exchange.upstream.as_ref();
                client.exchange.preferred = upstream.and_then(|upstream| upstream.preferred(&client.head));
                Flow::Moved
            }
            L7Verdict::Answer(answer) => self.answer(&answer),
            L7Verdict::Close => Flow::Needs(Step::Close),
        }
    }

    /// Checks target and Host, and makes a path of the target. What a target says about the host replaces the
    /// Host header (RFC 9112, 3.2.2).
    fn read_target(&mut self) -> Result<(), Cause> {
        let client = &mut *self.client;
        let message = &client.head;
        // Each header is looked up in it.
        if message.values(b"connection").map(<[u8]>::len).sum::<usize>() > MOST_CONNECTION {
            return Err(Cause::LineTooLong);
        }
        let target = Target::read(message.method(), message.target(), message.values(b"host").next())?;
        client.host.clear();
        client.host.extend_from_slice(target.host);
        if target.path.len() != message.target().len() {
            let slash: &[u8] = if target.path.starts_with(b"?") { b"/" } else { b"" };
            let (path, authority) = ([slash, target.path].concat(), target.authority.to_vec());
            client.head.set_target(&path);
            client.head.remove(b"host");
            client.head.add(b"Host", &authority);
        }
        Ok(())
    }

    /// A request is malformed. What follows cannot be read.
    pub(super) fn reject(&mut self, cause: Cause) -> Flow {
        self.common.counters.add(Count::Invalid);
        self.client.keeps_open = false;
        if self.client.exchange.is_answered {
            return Flow::Needs(Step::Close);
        }
        self.answer_status(status_of(cause))
    }

    /// Gives the client the page of a status. Further steps send it.
    pub fn refuse(&mut self, status: u16) {
        // Making an answer needs nothing.
        let _ = self.answer_status(status);
    }

    /// Answers with the page of a status.
    fn answer_status(&mut self, status: u16) -> Flow {
        self.answer(&L7Answer::of_status(status))
    }

    /// Answers in the place of a server.
    pub(super) fn answer(&mut self, answer: &L7Answer) -> Flow {
        let (client, common) = (&mut *self.client, &mut *self.common);
        if let Some(server) = &mut self.server {
            // Its own response, or the rest of it, may still come, and is for no other request.
            server.keeps_open = false;
        }
        if client.phase != Phase::Exchange {
            // Functions that have not seen a request know no answer to it.
            client.channel.set_filter(None);
            client.enter(Phase::Exchange, common.now);
            client.exchange = Exchange { chain: Some(common.chain.clone()), ..Exchange::default() };
        }
        common.counters.add(Count::Answered);
        let exchange = &mut client.exchange;
        let (minor, has_body) =
            exchange.request.map_or((1, true), |head| (head.minor, head.body.has_bytes()));
        if has_body && !exchange.request_done {
            client.keeps_open = false;
        } else if !exchange.request_done {
            // Only the end of the message is left of it.
            exchange.request_done = matches!(client.reader.next(&[]), (_, Event::Done));
        }
        let is_head = exchange.class().is_head;
        let text = client.channel.output.text(&mut common.pool);
        let before = text.len();
        write_answer(answer, is_head, connection(client.keeps_open && !common.is_stopping, minor), text);
        (exchange.is_answered, exchange.response_done) = (true, true);
        exchange.status = answer.status;
        exchange.response_bytes = (text.len() - before) as u64;
        Flow::Moved
    }

    /// The server is ready for the request.
    pub(super) fn send_head(&mut self) {
        let Some(server) = &mut self.server else { return };
        let Some(head) = self.client.exchange.request else { return };
        server.is_ready = true;
        let text = server.channel.output.text(&mut self.common.pool);
        if let Some((_, Some(header))) = server.owner.filter(|_| !server.is_reused) {
            header.write(Some(self.client.peer), text);
        }
        let added = &self.client.filters.request_headers;
        write_request(&self.client.head, (&head, added), &self.client.peer, server.address, text);
        self.client.since = self.common.now;
    }

    /// Receives the body of the request.
    pub(super) fn receive_request(&mut self) -> Flow {
        let (client, common) = (&mut *self.client, &mut *self.common);
        let (Some(server), Some(head)) = (&mut self.server, client.exchange.request) else {
            return Flow::Blocked;
        };
        let exchange = &mut client.exchange;
        if exchange.request_done || server.channel.output.is_full() {
            return Flow::Blocked;
        }
        if client.channel.input.is_empty() && head.body.has_bytes() {
            match client.channel.fill(&mut common.pool) {
                Ok(Filled::Bytes(len)) => common.note_received(len),
                Ok(Filled::Nothing) => return Flow::Blocked,
                Ok(Filled::End) | Err(_) => return self.abort(),
            }
        }
        exchange.request_body.framing = Framing::of(head.body, true);
        let text = server.channel.output.text(&mut common.pool);
        let mut at = 0;
        let end = loop {
            let bytes = client.channel.input.bytes().get(at..).unwrap_or_default();
            let (len, event) = client.reader.next(bytes);
            at += len;
            match event {
                Event::More => break Ok(()),
                Event::Done => {
                    exchange.request_done = true;
                    exchange.request_body.end(text);
                    break Ok(());
                }
                Event::Invalid(cause) => break Err(status_of(cause)),
                event => {
                    exchange.has_body = true;
                    exchange.request_bytes += exchange.request_body.write(&event, text);
                    // Before the end of the body is written: the server must not execute the request.
                    if common.settings.body_limit.is_some_and(|most| exchange.request_bytes > most) {
                        break Err(413);
                    }
                }
            }
        };
        client.channel.input.consume(at);
        client.channel.input.rest(&mut common.pool);
        match end {
            Err(status) => self.refuse_body(status),
            Ok(()) => Flow::Moved,
        }
    }

    /// The body is not accepted. The server has got a part of it, and must not take that for the whole.
    fn refuse_body(&mut self, status: u16) -> Flow {
        self.common.counters.add(Count::Invalid);
        self.client.keeps_open = false;
        if self.client.exchange.is_answered {
            return Flow::Needs(Step::Close);
        }
        self.answer_status(status)
    }

    /// Sends bytes to the server. A server that takes no more may have answered early.
    pub(super) fn send_request(&mut self) -> Flow {
        let Some(server) = &mut self.server else { return Flow::Blocked };
        if self.common.waits(&server.channel) {
            return Flow::Blocked;
        }
        match server.channel.flush(&mut self.common.pool) {
            Ok(0) => Flow::Blocked,
            Ok(_) => Flow::Moved,
            Err(_) => {
                server.channel.output.clear();
                server.keeps_open = false;
                Flow::Blocked
            }
        }
    }
}
