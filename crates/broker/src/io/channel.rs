//! A TCP socket with its buffers.
//!
//! Theory of operation. Events are edges: after one, the socket is used until it would block. A stream socket
//! that gives fewer bytes than there was room for has no more of them (epoll(7)), so that most requests need
//! one call. Only an end of the stream that has been announced has to be read besides.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::event::Event;
use mio::net::TcpStream;

use mmb_nf::{Follows, Refusal};

use super::buffer::{Input, Output, Pool};
use super::filter::Filter;

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    Nothing,
    Bytes(usize),
    End,
}

/// A TCP socket with its buffers.
#[derive(Debug)]
pub(crate) struct Channel {
    pub socket: TcpStream,
    pub input: Input,
    pub output: Output,
    /// Functions that read and edit the bytes.
    filter: Option<Box<Filter>>,
    /// How often bytes were received.
    pub receptions: u32,
    can_read: bool,
    can_write: bool,
    /// The other end has announced that it sends no more.
    end_follows: bool,
    /// The other end sends no more, and all bytes were received.
    pub is_ended: bool,
    /// No more is sent to the other end.
    pub is_shut: bool,
    /// The connection has failed, which needs neither a read nor a write to be known.
    pub is_reset: bool,
}

impl Channel {
    /// `can_write`: the socket is connected.
    pub fn new(socket: TcpStream, can_write: bool) -> Channel {
        let (input, output) = (Input::default(), Output::default());
        let (can_read, end_follows, is_ended, is_shut) = (false, false, false, false);
        let (filter, receptions, is_reset) = (None, 0, false);
        Channel {
            socket,
            input,
            output,
            filter,
            receptions,
            can_read,
            can_write,
            end_follows,
            is_ended,
            is_shut,
            is_reset,
        }
    }

    /// The bytes pass these functions from here on. What those before hold back for the other end goes on.
    pub fn set_filter(&mut self, filter: Option<Filter>) {
        self.set_follows(Follows::Answer);
        if let Some(filter) = &mut self.filter {
            self.output.filter(filter);
        }
        self.filter = filter.map(Box::new);
    }

    /// Tells functions what follows the bytes that are to be sent.
    pub fn set_follows(&mut self, follows: Follows) {
        if let Some(filter) = &mut self.filter {
            filter.set_follows(follows);
        }
    }

    /// Whether functions hold bytes back.
    pub fn is_holding(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.is_holding())
    }

    /// Lets go on what functions hold back.
    pub fn release(&mut self) {
        self.set_follows(Follows::Answer);
        if self.input.is_empty()
            && let Some(text) = self.filter.as_mut().and_then(|filter| filter.received(&[], Follows::Answer))
        {
            self.input.replace(text);
        }
    }

    /// Returns what becomes of the connection if a function has refused it.
    pub fn refusal(&self) -> Option<Refusal> {
        self.filter.as_ref()?.refusal()
    }

    /// The socket has received bytes, or the end. Returns how many go on.
    fn filter_input(&mut self, received: usize, follows: Follows) -> io::Result<usize> {
        self.receptions = self.receptions.wrapping_add(1);
        let Some(filter) = &mut self.filter else { return Ok(received) };
        let text = filter.received(self.input.bytes(), follows).ok_or(ErrorKind::ConnectionAborted)?;
        self.input.replace(text);
        Ok(self.input.bytes().len())
    }

    /// The socket is ready for something.
    pub fn on_event(&mut self, event: &Event) {
        let has_end = event.is_read_closed() || event.is_error();
        self.can_read |= event.is_readable() || has_end;
        self.can_write |= event.is_writable() || event.is_error();
        self.end_follows |= has_end;
        self.is_reset |= event.is_error();
    }

    /// Whether there was an event by which a connection may be established.
    pub fn can_write(&self) -> bool {
        self.can_write
    }

    /// Whether the other end has sent nothing but what was used, and has announced no end.
    pub fn is_silent(&mut self, pool: &mut Pool) -> bool {
        if !self.input.is_empty() || self.end_follows {
            return false;
        }
        // Only a read that took as many bytes as there was room for does not tell whether there are more.
        matches!(self.fill(pool), Ok(Filled::Nothing))
    }

    /// Receives bytes, if there are some and there is room.
    ///
    /// # Errors
    /// The connection was reset, or a function has refused it.
    pub fn fill(&mut self, pool: &mut Pool) -> io::Result<Filled> {
        if !self.can_read || self.is_ended {
            return Ok(if self.is_ended { Filled::End } else { Filled::Nothing });
        }
        let room = self.input.room(pool);
        let most = room.len();
        if most == 0 {
            return Ok(Filled::Nothing);
        }
        loop {
            match self.socket.read(room) {
                Ok(0) => {
                    self.is_ended = true;
                    return Ok(match self.filter_input(0, Follows::End)? {
                        0 => Filled::End,
                        len => Filled::Bytes(len),
                    });
                }
                Ok(len) => {
                    self.can_read = len == most || self.end_follows;
                    self.input.received(len);
                    self.filter_input(len, Follows::More)?;
                    return Ok(Filled::Bytes(len));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.can_read = false;
                    self.input.rest(pool);
                    return Ok(Filled::Nothing);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends bytes, as many as the socket takes. Returns how many.
    ///
    /// # Errors
    /// The connection was reset, or a function has refused it.
    pub fn flush(&mut self, pool: &mut Pool) -> io::Result<usize> {
        let mut sent = 0;
        if let Some(filter) = &mut self.filter
            && !self.output.filter(filter)
        {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        while self.can_write && !self.output.is_empty() {
            match self.socket.write(self.output.bytes()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => {
                    sent += len;
                    self.can_write = len == self.output.len();
                    self.output.consume(len);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.can_write = false,
                Err(error) => return Err(error),
            }
        }
        self.output.rest(pool);
        Ok(sent)
    }

    /// Sends no more. Errors mean that the connection has ended already.
    pub fn shut(&mut self) {
        if !std::mem::replace(&mut self.is_shut, true) {
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// Gives back the memory of empty buffers.
    pub fn rest(&mut self, pool: &mut Pool) {
        self.input.rest(pool);
        self.output.rest(pool);
    }
}
