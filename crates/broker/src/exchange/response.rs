//! From the server to the client.

use mmb_http::{Body, Event, Head};
use mmb_nf::{L7Response, L7Verdict};

use super::body::{BodyWriter, Framing};
use super::head::{Delivery, keeps_open, write_response};
use super::{Failure, Flow, Pair, Phase, Server, Step};
use crate::counters::Count;
use crate::io::Filled;

impl Server {
    /// Whether the connection is established.
    pub(super) fn check_connected(&mut self) -> Result<bool, Failure> {
        if self.is_reused {
            return Ok(true);
        }
        if !self.channel.can_write() {
            return Ok(false);
        }
        match self.channel.socket.take_error() {
            Ok(None) => Ok(self.channel.socket.peer_addr().is_ok()),
            Ok(Some(_)) | Err(_) => Err(Failure::Connect),
        }
    }
}

/// The part of a response that the bytes of a server complete.
enum Parsed {
    /// All bytes were used.
    Nothing,
    Head(Head),
    Done,
    Invalid,
}

impl Pair<'_> {
    /// Receives the response.
    pub(super) fn receive_response(&mut self) -> Flow {
        let mut moved = false;
        loop {
            let (client, common) = (&mut *self.client, &mut *self.common);
            let Some(server) = &mut self.server else { return Flow::Blocked };
            let is_full = client.channel.output.is_full() || common.turn == 0;
            if is_full || client.exchange.response_done || client.phase != Phase::Exchange {
                break;
            }
            if server.channel.input.is_empty() && !server.ends_with_head {
                match server.channel.fill(&mut common.pool) {
                    Ok(Filled::Bytes(len)) => common.spend(len),
                    Ok(Filled::Nothing) => break,
                    Ok(Filled::End) => return self.server_ended(),
                    Err(_) => return self.server_failed(Failure::Ended),
                }
            }
            moved = true;
            match self.read_response() {
                Parsed::Nothing => {}
                Parsed::Head(head) if head.is_interim() => self.interim(head),
                Parsed::Head(head) => {
                    if let needs @ Flow::Needs(_) = self.answered(head) {
                        return needs;
                    }
                }
                Parsed::Done if self.client.exchange.is_interim => self.client.exchange.is_interim = false,
                Parsed::Done => self.complete(),
                Parsed::Invalid => return self.server_failed(Failure::Invalid),
            }
        }
        if moved { Flow::Moved } else { Flow::Blocked }
    }

    /// Reads the bytes of the server up to the end of a head or of a message.
    fn read_response(&mut self) -> Parsed {
        let (client, common) = (&mut *self.client, &mut *self.common);
        let Some(server) = &mut self.server else { return Parsed::Nothing };
        let class = client.exchange.class();
        let exchange = &mut client.exchange;
        let text = client.channel.output.text(&mut common.pool);
        let mut at = 0;
        let found = loop {
            let bytes = server.channel.input.bytes().get(at..).unwrap_or_default();
            let (len, event) = server.reader.next(class, bytes);
            at += len;
            match event {
                Event::More | Event::Opaque(_) => break Parsed::Nothing,
                Event::Head(head) => {
                    server.ends_with_head = !head.body.has_bytes() && head.body != Body::Switched;
                    break Parsed::Head(head);
                }
                Event::Done => {
                    server.ends_with_head = false;
                    break Parsed::Done;
                }
                Event::Invalid(_) => break Parsed::Invalid,
                event if exchange.is_answered => {
                    exchange.response_bytes += exchange.response_body.write(&event, text);
                }
                event => server.head.push(&event),
            }
        };
        server.channel.input.consume(at);
        server.channel.input.rest(&mut common.pool);
        found
    }

    /// An interim response goes on, to clients that know such responses (RFC 9110, 15.2).
    fn interim(&mut self, head: Head) {
        let (client, common) = (&mut *self.client, &mut *self.common);
        let Some(server) = &mut self.server else { return };
        client.exchange.is_interim = true;
        let minor = client.exchange.request.map_or(1, |request| request.minor);
        if minor >= 1 {
            let text = client.channel.output.text(&mut common.pool);
            let delivery = Delivery { framing: Framing::None, keeps_open: true, minor };
            write_response(&server.head, &head, delivery, text);
        }
        server.head.clear(super::KEPT_HEAD);
    }

    /// The head of the final response is complete.
    fn answered(&mut self, head: Head) -> Flow {
        let (client, common) = (&mut *self.client, &mut *self.common);
        let Some(server) = &mut self.server else { return Flow::Blocked };
        let exchange = &mut client.exchange;
        let (class, request) = (exchange.class(), exchange.request);
        if head.body == Body::Switched && !class.has_upgrade {
            return self.server_failed(Failure::Invalid);
        }
        server.keeps_open &= keeps_open(&server.head, head.minor) && head.body != Body::UntilClose;
        if let Some(chain) = exchange.chain.clone() {
            let message = &mut server.head;
            let mut response = L7Response {
                exchange: exchange.id,
                peer: client.peer,
                message,
                head,
                request: class,
                server: exchange.chosen,
                preferred: exchange.preferred,
            };
            let verdict = chain.borrow_mut().response(&mut response, exchange.passed);
            match verdict {
                L7Verdict::Pass => {}
                L7Verdict::Close => return Flow::Needs(Step::Close),
                L7Verdict::Answer(answer) => return self.answer(&answer),
            }
        }
        let minor = request.map_or(1, |request| request.minor);
        let framing = Framing::of(head.body, minor >= 1);
        exchange.response_body = BodyWriter::new(framing);
        if framing == Framing::UntilClose || common.is_stopping {
            client.keeps_open = false;
        }
        // Behind a response that comes early, the rest of the request is not read.
        client.keeps_open &= exchange.request_done;
        let keeps_open = client.keeps_open;
        let delivery = Delivery { framing, keeps_open, minor };
        let text = client.channel.output.text(&mut common.pool);
        write_response(&server.head, &head, delivery, text);
        server.head.clear(super::KEPT_HEAD);
        exchange.is_answered = true;
        exchange.status = head.status;
        if head.body == Body::Switched {
            common.counters.add(Count::Tunnels);
            exchange.response_done = true;
            client.enter(Phase::Tunnel, common.now);
        }
        Flow::Moved
    }

    /// The response is complete.
    fn complete(&mut self) {
        let (client, common) = (&mut *self.client, &mut *self.common);
        client.exchange.response_body.end(client.channel.output.text(&mut common.pool));
        client.exchange.response_done = true;
    }

    /// The server sends no more.
    fn server_ended(&mut self) -> Flow {
        let Some(server) = &mut self.server else { return Flow::Blocked };
        server.keeps_open = false;
        if server.reader.end() == Some(Event::Done) && self.client.exchange.is_answered {
            self.complete();
            return Flow::Moved;
        }
        self.server_failed(Failure::Ended)
    }

    /// The server has not sent a whole response. A client that has a part of it gets what there is. The end
    /// of its connection tells that the rest is missing.
    fn server_failed(&mut self, failure: Failure) -> Flow {
        if self.client.exchange.is_answered {
            self.common.counters.add(Count::Failed);
            self.client.keeps_open = false;
            self.client.enter(Phase::Closing, self.common.now);
            return Flow::Moved;
        }
        Flow::Needs(Step::Failed(failure))
    }
}
