//! The messages in some bytes of a direction: what is changed, and what waits.

use std::ops::Range;

use mmb_http::{Body, Cause, Connection, Element, Event, Head};

use super::body::{Content, END, Treatment, edited_len};
use super::config::Config;
use super::header::{Facts, write, write_header};
use super::path::{PathRewrite, Rewritten, Room, path_of};
use super::plan::Plan;
use super::{Count, Counts, Side, mark, wait};
use mmb_flow::Key;

/// Most bytes of a head that waits as a whole, and of a request that waits for its length.
pub(super) const MOST_WAITING: usize = 16 << 10;

/// The buffers of a worker.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(super) plan: Plan,
    pub(super) content: Content,
    pub(super) joined: Vec<u8>,
    pub(super) rooms: Vec<Room>,
}

impl Scratch {
    pub(super) fn new(config: &Config) -> Scratch {
        Scratch { rooms: config.paths.iter().map(PathRewrite::room).collect(), ..Scratch::default() }
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
    position: Position,
    facts: Facts,
}

/// Where the reader is.
#[derive(Clone, Debug, Default)]
struct Position {
    at: usize,
    /// Behind the last line that is complete.
    boundary: usize,
    /// Where the head that is being read begins. None: a part of it has gone on.
    head: Option<usize>,
    /// Changes that are planned in front of the head, and what is counted.
    planned: usize,
    counted: Counts,
    /// The target, or the name of a header.
    name: Range<usize>,
    value: Range<usize>,
    /// A request waits for its length: the position behind its body.
    end: Option<usize>,
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
    /// The bytes are not accepted as HTTP.
    pub fn read(&mut self) -> Result<usize, Cause> {
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
                Event::Invalid(cause) => return Err(cause),
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
                    self.decide_body(true, true);
                    self.side.set(mark::IN_BODY, false);
                    self.end_line();
                }
                Event::Done => self.done(),
                _ => {}
            }
        }
        Ok(self.hold())
    }

    fn treatment(&self) -> Treatment {
        Treatment::of(self.side.treatment)
    }

    /// Returns the position from which on the bytes wait.
    fn hold(&mut self) -> usize {
        let len = self.bytes.len();
        self.side.until = wait::ANY;
        if self.side.has(mark::IN_BODY) && self.position.end.is_none() {
            return self.decide_body(!self.can_hold, false).unwrap_or(len);
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
            self.side.until = if is_head { of_head } else { wait::LINE };
            if head == Some(hold) {
                self.scratch.plan.truncate(planned);
                self.counts = counted;
                self.side.set(mark::IN_BODY, false);
                self.side.treatment = Treatment::Pass as u8;
            } else {
                self.side.set(mark::HEAD_CUT, true);
            }
            return hold;
        }
        self.side.set(mark::LINE_CUT, self.side.has(mark::LINE_CUT) || boundary < len);
        let is_cut = head.is_none_or(|head| head < len);
        self.side.set(mark::HEAD_CUT, self.side.has(mark::HEAD_CUT) || is_cut);
        len
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
        self.counts.add(Count::CutLines, self.side.has(mark::LINE_CUT) && !self.config.paths.is_empty());
        if let Some(path) = path {
            let Scratch { plan, rooms, .. } = &mut *self.scratch;
            for (rewrite, room) in self.config.paths.iter().zip(rooms) {
                let mut result = Rewritten::No;
                let mark = plan.len();
                plan.replace(name.start + path..end, |text| {
                    result = rewrite.rewrite(&target[path..], room, text)
                });
                if result != Rewritten::Yes {
                    plan.truncate(mark);
                }
                self.counts.add(Count::Paths, result == Rewritten::Yes);
                self.counts.add(Count::RefusedPaths, result == Rewritten::Refused);
                if result != Rewritten::No {
                    break;
                }
            }
        }
        self.end_line();
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
                || self.direction == 0
                    && self.config.bodies[1].is_some()
                    && text.eq_ignore_ascii_case(b"accept-encoding");
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
        let adds_encoding = self.direction == 0 && self.config.bodies[1].is_some();
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
            self.position.head = None;
        }
    }

    /// Chooses what becomes of a body, and plans the changes of the head for it.
    fn choose(&mut self, head: &Head) -> Treatment {
        let Some(edits) = &self.config.bodies[self.direction] else { return Treatment::Pass };
        let has_body = head.body.has_bytes();
        let is_bodiless = self.direction == 1
            && (head.request.is_some_and(|request| request.is_head) || head.status == 304);
        if head.is_interim() || !has_body && !is_bodiless {
            return Treatment::Pass;
        }
        let facts = self.facts.clone();
        let other = [
            (Count::CutHeads, self.side.has(mark::HEAD_CUT) || self.position.head.is_none()),
            (Count::Encoded, facts.is_encoded),
            (Count::Partial, head.status == 206),
        ];
        if let Some((why, _)) = other.into_iter().find(|(_, is)| *is) {
            self.counts.add(why, has_body);
            return Treatment::Pass;
        }
        let is_unchanged = head.status == 304;
        let has_type = facts.has_type.unwrap_or_else(|| self.config.is_edited_type(b""));
        if self.direction == 1 && !has_type && !is_unchanged {
            return Treatment::Pass;
        }
        let mut treatment = Treatment::Replace;
        let mut removes_length = is_bodiless && !edits.keeps_length;
        match head.body {
            Body::Chunked => treatment = Treatment::Rechunk,
            Body::Length(len) if has_body && !edits.keeps_length => {
                let body = usize::try_from(len)
                    .ok()
                    .and_then(|len| self.bytes.get(self.position.at..self.position.at.checked_add(len)?));
                let is_small = len <= MOST_WAITING as u64;
                let plan = &mut self.scratch.plan;
                if let Some(new) = body.filter(|_| is_small).and_then(|body| edited_len(edits, body, plan)) {
                    if let Some((_, value)) = facts.length.clone() {
                        plan.replace(value, |text| write(text, format_args!("{new}")));
                    }
                } else if self.direction == 0 && is_small && body.is_none() && self.can_hold && !facts.expects
                {
                    self.position.end = Some(self.position.at + len as usize);
                    return Treatment::Pass;
                } else if head.minor == 1 && !self.connection.is_http10() {
                    (treatment, removes_length) = (Treatment::Chunk, true);
                } else if self.direction == 1 && (facts.closes || head.minor == 0 && !facts.keeps_open) {
                    removes_length = true;
                } else {
                    self.counts.add(Count::NoChunks, true);
                    return Treatment::Pass;
                }
            }
            _ => {}
        }
        self.counts.add(Count::Bodies, has_body);
        let plan = &mut self.scratch.plan;
        facts.removed().for_each(|line| plan.remove(line));
        if let Some((line, _)) = facts.length.filter(|_| removes_length) {
            plan.remove(line);
        }
        if let Some(etag) = facts.etag.filter(|etag| self.bytes.get(etag.start) == Some(&b'"')) {
            plan.insert(etag.start, b"W/");
        }
        if has_body { treatment } else { Treatment::Pass }
    }

    /// Plans what becomes of the content so far.
    fn decide_body(&mut self, is_last: bool, has_end: bool) -> Option<usize> {
        let (treatment, at) = (self.treatment(), self.position.at);
        let edits = self.config.bodies[self.direction].as_ref();
        let edits = edits.filter(|_| treatment != Treatment::Pass)?;
        let Scratch { plan, content, .. } = &mut *self.scratch;
        let decided = content.decide((self.bytes, at), (edits, treatment), (is_last, has_end), plan);
        self.counts.count(Count::Replaced, decided.replaced);
        self.counts.count(Count::NotReplaced, decided.refused);
        decided.hold
    }

    /// A message is complete.
    fn done(&mut self) {
        if self.side.has(mark::IN_BODY) {
            self.decide_body(true, false);
            if self.treatment() == Treatment::Chunk {
                self.scratch.plan.insert(self.position.at, END);
            }
        }
        self.side = Side { held: self.side.held, ..Side::default() };
        self.end_line();
        self.position.head = Some(self.position.at);
        (self.position.planned, self.position.counted) = (self.scratch.plan.len(), self.counts);
    }
}
