//! The messages in some bytes of a direction: what is changed, and what waits.

use std::ops::Range;

use mmb_http::{Body, Cause, Connection, Element, Event, Head};

use super::body::{Content, END, Treatment};
use super::config::Config;
use super::header::{Facts, describes_body, write_header};
use super::path::{Rewritten, Room, UriRewrite, path_of};
use super::plan::Plan;
use super::{Count, Counts, Side, mark, wait};
use crate::shared::content_coding::{DecodeError, Decoders};
use mmb_flow::Key;

/// Most bytes of a head that waits as a whole, and of a request that waits for its length.
pub(super) const MOST_WAITING: usize = 16 << 10;

/// The buffers and decoders of a worker.
pub(crate) struct Scratch {
    pub(super) plan: Plan,
    pub(super) content: Content,
    pub(super) joined: Vec<u8>,
    /// By direction, one for each rewrite.
    pub(super) rooms: [Vec<Room>; 2],
    pub(super) decoders: Decoders,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            plan: Plan::default(),
            content: Content::default(),
            joined: Vec::new(),
            rooms: Default::default(),
            decoders: Decoders::new(0),
        }
    }
}

impl Scratch {
    pub(super) fn new(config: &Config) -> Scratch {
        let rooms = config.rewrites.each_ref().map(|all| all.iter().map(UriRewrite::room).collect());
        Scratch { rooms, decoders: Decoders::new(config.most_undecided()), ..Scratch::default() }
    }
}

/// Why bytes cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// They are not accepted as HTTP.
    Http(Cause),
    /// A body cannot be decoded, and its head has gone on.
    Body(DecodeError),
}

impl From<DecodeError> for ReadError {
    fn from(error: DecodeError) -> ReadError {
        ReadError::Body(error)
    }
}

/// Reads some bytes of a direction.
pub(super) struct Reader<'a> {
    pub config: &'a Config,
    pub bytes: &'a [u8],
    pub direction: usize,
    pub can_hold: bool,
    pub connection: Connection,
    pub side: Side,
    /// The key of requests.
    pub key: Option<Key>,
    pub counts: Counts,
    pub scratch: &'a mut Scratch,
    pub(super) position: Position,
    pub(super) facts: Facts,
}

/// Where the reader is.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    pub at: usize,
    /// Behind the last line that is complete.
    boundary: usize,
    /// Where the head that is being read begins. None: a part of it has gone on.
    pub head: Option<usize>,
    /// Changes that are planned in front of the head, and what is counted.
    planned: usize,
    counted: Counts,
    /// The target, or the name of a header.
    name: Range<usize>,
    value: Range<usize>,
    /// A request waits for its length: the position behind its body.
    pub end: Option<usize>,
    /// A body is decoded behind others in these bytes: where its message begins, the changes that are planned
    /// in front of it, and what is counted.
    later: Option<(usize, usize, Counts)>,
}

impl<'a> Reader<'a> {
    pub fn new(
        (config, bytes, scratch): (&'a Config, &'a [u8], &'a mut Scratch),
        (direction, can_hold): (usize, bool),
        (connection, side): (Connection, Side),
        key: Option<Key>,
    ) -> Reader<'a> {
        scratch.plan.clear();
        scratch.content.begin(0);
        let mut position = Position::default();
        if connection.is_idle(direction) {
            position.head = Some(0);
        }
        Reader {
            config,
            bytes,
            direction,
            can_hold,
            connection,
            side,
            key,
            counts: Counts::default(),
            scratch,
            position,
            facts: Facts::default(),
        }
    }

    /// Reads all bytes, and plans their changes. Returns the position from which on the bytes wait.
    ///
    /// # Errors
    /// The bytes are not accepted as HTTP, or a body cannot be decoded.
    pub fn read(&mut self) -> Result<usize, ReadError> {
        match self.read_all() {
            Err(ReadError::Body(DecodeError::TooLarge)) => {
                self.hold_later().ok_or(ReadError::Body(DecodeError::TooLarge))
            }
            result => result,
        }
    }

    /// Several bodies in these bytes are too large together when they are decoded. The message of the last
    /// one waits, and is read again when those in front of it have gone. Returns its position.
    fn hold_later(&mut self) -> Option<usize> {
        let (head, planned, counted) = self.position.later.filter(|_| self.can_hold)?;
        self.scratch.decoders.close(self.side.take_decoder());
        self.scratch.plan.truncate(planned);
        self.counts = counted;
        self.side = Side { held: self.side.held, ..Side::default() };
        Some(head)
    }

    fn read_all(&mut self) -> Result<usize, ReadError> {
        #[cfg(test)]
        super::tests::note_read(self.bytes.len());
        loop {
            let rest = self.bytes.get(self.position.at..).unwrap_or(&[]);
            let (len, event) = self.connection.next(self.direction, rest);
            let from = self.position.at;
            self.position.at += len;
            match event {
                Event::More => break,
                // Nothing that follows is edited.
                Event::Opaque(_) => return Ok(self.bytes.len()),
                Event::Invalid(cause) => return Err(ReadError::Http(cause)),
                Event::Bytes(element, bytes) => {
                    let range = self.position.at - bytes.len()..self.position.at;
                    match element {
                        Element::Target | Element::Name | Element::TrailerName => self.position.name = range,
                        Element::Value | Element::TrailerValue => self.position.value = range,
                        Element::Body if self.treatment() != Treatment::Pass => {
                            self.scratch.content.push(range)
                        }
                        _ => {}
                    }
                }
                Event::End(Element::Target) => self.target(from),
                Event::End(Element::Reason) => self.end_line(),
                Event::End(Element::Value | Element::TrailerValue) => self.line(),
                Event::Head(head) => {
                    self.head(&head);
                    if self.position.end.is_some() {
                        break;
                    }
                }
                Event::Chunk(0) => {
                    self.decide_body(true, true)?;
                    self.end_decoder()?;
                    self.side.set(mark::IN_BODY, false);
                    self.end_line();
                }
                Event::Done => self.done()?,
                _ => {}
            }
        }
        self.hold()
    }

    pub(super) fn treatment(&self) -> Treatment {
        Treatment::of(self.side.treatment)
    }

    /// Returns the position from which on the bytes wait.
    fn hold(&mut self) -> Result<usize, ReadError> {
        let len = self.bytes.len();
        self.side.set_until(wait::ANY);
        if self.side.has(mark::IN_BODY) && self.position.end.is_none() {
            return Ok(self.decide_body(!self.can_hold, false)?.unwrap_or(len));
        }
        let Position { boundary, head, planned, counted, end, .. } = self.position;
        let waits = |head: usize| end.is_some() || self.waits_for_head() && len - head <= MOST_WAITING;
        let hold = match head {
            Some(head) if waits(head) => head,
            _ => boundary,
        };
        if self.can_hold && hold < len {
            let of_head = end.map_or(wait::HEAD, |end| u16::try_from(end - hold).unwrap_or(wait::ANY));
            let is_head = head.is_some_and(waits);
            self.side.set_until(if is_head { of_head } else { wait::LINE });
            if head == Some(hold) {
                self.scratch.plan.truncate(planned);
                self.counts = counted;
                self.side.set(mark::IN_BODY, false);
                self.side.treatment = Treatment::Pass as u8;
            } else {
                self.side.set(mark::HEAD_CUT, true);
            }
            return Ok(hold);
        }
        self.side.set(mark::LINE_CUT, self.side.has(mark::LINE_CUT) || boundary < len);
        let is_cut = head.is_none_or(|head| head < len);
        self.side.set(mark::HEAD_CUT, self.side.has(mark::HEAD_CUT) || is_cut);
        Ok(len)
    }

    /// Whether the end of a head decides about its lines.
    fn waits_for_head(&self) -> bool {
        self.config.bodies[self.direction].is_some()
    }

    /// A line is complete.
    fn end_line(&mut self) {
        self.position.boundary = self.position.at;
        (self.position.name, self.position.value) = (0..0, 0..0);
        self.side.set(mark::LINE_CUT, false);
    }

    /// The target of a request is complete. `end`: the position behind it.
    fn target(&mut self, end: usize) {
        let name = self.position.name.clone();
        let target = self.bytes.get(name.start..end).unwrap_or(&[]);
        let path = path_of(target).filter(|_| !self.side.has(mark::LINE_CUT));
        let is_cut = self.side.has(mark::LINE_CUT) && !self.config.rewrites[0].is_empty();
        self.counts.add(Count::CutLines, is_cut);
        if let Some(path) = path {
            self.rewrite(name.start + path..end);
        }
        self.end_line();
    }

    /// Plans what becomes of a path, or of the value of Location. The first expression that matches counts.
    fn rewrite(&mut self, range: Range<usize>) {
        let old = self.bytes.get(range.clone()).unwrap_or(&[]);
        let (is_done, is_refused) = match self.direction {
            0 => (Count::Paths, Count::RefusedPaths),
            _ => (Count::Locations, Count::RefusedLocations),
        };
        let (rewrites, Scratch { plan, rooms, .. }) =
            (&self.config.rewrites[self.direction & 1], &mut *self.scratch);
        for (rewrite, room) in rewrites.iter().zip(&mut rooms[self.direction & 1]) {
            let mut result = Rewritten::No;
            let mark = plan.len();
            plan.replace(range.clone(), |text| result = rewrite.rewrite(old, room, text));
            if result != Rewritten::Yes {
                plan.truncate(mark);
            }
            self.counts.add(is_done, result == Rewritten::Yes);
            self.counts.add(is_refused, result == Rewritten::Refused);
            if result != Rewritten::No {
                break;
            }
        }
    }

    /// A header is complete, with the end of its line.
    fn line(&mut self) {
        let Position { name, value, at, .. } = self.position.clone();
        if !self.side.has(mark::LINE_CUT) {
            let line = name.start..at;
            let value = if value.is_empty() { at..at } else { value };
            let text = self.bytes.get(name).unwrap_or(&[]);
            let removed = self.config.headers[self.direction].removed.iter();
            let is_removed = removed.into_iter().any(|one| one.eq_ignore_ascii_case(text))
                || self.config.removes_request_header(self.direction, text)
                // Only trailers follow a head that has told about its body.
                || self.treatment() != Treatment::Pass && describes_body(text);
            if self.direction == 1 && !is_removed && text.eq_ignore_ascii_case(b"location") {
                let len = self.bytes.get(value.clone()).unwrap_or(&[]).trim_ascii_end().len();
                if len != 0 {
                    self.rewrite(value.start..value.start + len);
                }
            }
            if self.waits_for_head() && self.position.head.is_some() {
                let place = (line.clone(), value.clone());
                let value = self.bytes.get(value).unwrap_or(&[]).trim_ascii();
                self.facts.note((text, value), place, is_removed, self.config);
            }
            if is_removed {
                self.scratch.plan.remove(line);
                self.counts.add(Count::Removed, true);
            }
        } else {
            self.counts.add(Count::CutLines, true);
        }
        self.end_line();
    }

    /// The headers are complete.
    fn head(&mut self, head: &Head) {
        let Position { at, planned, .. } = self.position;
        self.counts.add([Count::Requests, Count::Responses][self.direction & 1], !head.is_interim());
        let treatment = self.choose(head);
        let (end, edits) = (at.saturating_sub(2), &self.config.headers[self.direction]);
        let adds_encoding = self.direction == 0 && self.config.adds_encoding();
        let key = self.key;
        if !head.is_interim() {
            let headers = &edits.added;
            self.counts.count(Count::Added, headers.len() as u64);
            self.scratch.plan.replace(end..end, |text| {
                headers.iter().for_each(|(name, value)| write_header(name, value, key.as_ref(), text));
                if adds_encoding {
                    text.extend_from_slice(b"Accept-Encoding: identity\r\n");
                }
            });
        }
        if treatment.has_chunks() && head.body != Body::Chunked {
            self.scratch.plan.insert(end, b"Transfer-Encoding: chunked\r\n");
        }
        self.scratch.plan.sort_from(planned);
        self.end_line();
        self.side.set(mark::HEAD_CUT, false);
        self.side.treatment = treatment as u8;
        self.side.set(mark::IN_BODY, head.body.has_bytes());
        self.facts = Facts::default();
        self.scratch.content.begin(at);
        if self.position.end.is_none() {
            let is_later = self.side.decoder() != 0 && self.scratch.plan.body_bytes() != 0;
            let begins = self.position.head.take().filter(|_| is_later);
            self.position.later = begins.map(|head| (head, planned, self.position.counted));
        }
    }

    /// Plans what becomes of the content so far. Returns the position from which on bytes wait.
    fn decide_body(&mut self, is_last: bool, has_end: bool) -> Result<Option<usize>, ReadError> {
        let (treatment, at) = (self.treatment(), self.position.at);
        let edits = self.config.bodies[self.direction].as_ref();
        let Some(edits) = edits.filter(|_| treatment != Treatment::Pass) else { return Ok(None) };
        let Scratch { plan, content, decoders, .. } = &mut *self.scratch;
        let (input, edits, ends) = ((self.bytes, at), (edits, treatment), (is_last, has_end));
        let decided = match decoders.get(self.side.decoder()) {
            Some(decoder) => {
                let is_first_known = self.side.has(mark::IS_DECODED);
                let decided = content.decode(input, (decoder, is_first_known), edits, ends, plan)?;
                self.side.set(mark::IS_DECODED, decided.hold.is_some());
                decided
            }
            None => content.decide(input, edits, ends, plan),
        };
        self.counts.count(Count::Replaced, decided.replaced);
        self.counts.count(Count::NotReplaced, decided.refused);
        Ok(decided.hold)
    }

    /// A message is complete.
    fn done(&mut self) -> Result<(), ReadError> {
        if self.side.has(mark::IN_BODY) {
            self.decide_body(true, false)?;
            if self.treatment() == Treatment::Chunk {
                self.scratch.plan.insert(self.position.at, END);
            }
        }
        self.end_decoder()?;
        self.side = Side { held: self.side.held, ..Side::default() };
        self.end_line();
        self.position.head = Some(self.position.at);
        (self.position.planned, self.position.counted) = (self.scratch.plan.len(), self.counts);
        Ok(())
    }

    /// The body is complete that was decoded, if one was.
    fn end_decoder(&mut self) -> Result<(), ReadError> {
        let number = self.side.take_decoder();
        let Some(decoder) = self.scratch.decoders.get(number) else { return Ok(()) };
        let (result, has_garbage) = (decoder.end(), decoder.has_garbage());
        self.scratch.decoders.close(number);
        self.counts.add(Count::Garbage, has_garbage);
        Ok(result?)
    }
}
