//! What becomes of a body, and of the lines of the head that describe it.

use mmb_http::{Body, Head};

use super::Count;
use super::body::{Treatment, edited_len};
use super::config::BodyEdits;
use super::header::{Encoding, Facts, write};
use super::mark;
use super::message::{MOST_WAITING, Reader, Scratch};

/// How the length of a body is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// The body leaves so. The header Content-Length is removed if the flag is set.
    As(Treatment, bool),
    /// The head waits for the body.
    Waits,
    /// The end of an edited body could not be told.
    No,
}

impl Reader<'_> {
    /// Chooses what becomes of a body, and plans the changes of the head for it.
    pub(super) fn choose(&mut self, head: &Head) -> Treatment {
        let Some(edits) = &self.config.bodies[self.direction] else { return Treatment::Pass };
        let has_body = head.body.has_bytes();
        let is_bodiless = self.direction == 1
            && (head.request.is_some_and(|request| request.is_head) || head.status == 304);
        if head.is_interim() || !has_body && !is_bodiless {
            return Treatment::Pass;
        }
        let facts = self.facts.clone();
        if let Some(why) = self.is_not_edited(head, &facts) {
            self.counts.add(why, has_body);
            return Treatment::Pass;
        }
        let has_type = facts.has_type.unwrap_or_else(|| self.config.is_edited_type(b""));
        if self.direction == 1 && !has_type && head.status != 304 {
            return Treatment::Pass;
        }
        let is_decoded = facts.encoding != Encoding::None;
        let keeps_length = edits.keeps_length && !is_decoded;
        let (treatment, removes_length) = match head.body {
            Body::Chunked => (Treatment::Rechunk, false),
            Body::Length(len) if has_body && !keeps_length => {
                match self.settle_length(head, len, edits, &facts) {
                    Settled::As(treatment, removes_length) => (treatment, removes_length),
                    Settled::Waits => return Treatment::Pass,
                    Settled::No => {
                        self.counts.add(Count::NoChunks, true);
                        return Treatment::Pass;
                    }
                }
            }
            _ => (Treatment::Replace, is_bodiless && !keeps_length),
        };
        if has_body && !self.open_decoder(&facts) {
            self.counts.add(Count::NoDecoder, true);
            return Treatment::Pass;
        }
        self.counts.add(Count::Bodies, has_body);
        self.change_descriptions(facts, (is_decoded, removes_length));
        if has_body { treatment } else { Treatment::Pass }
    }

    /// Returns why a body is not edited, whatever its type is. None: it may be.
    fn is_not_edited(&self, head: &Head, facts: &Facts) -> Option<Count> {
        let is_fixed = facts.is_fixed && !self.config.ignores_no_transform;
        let all = [
            (Count::CutHeads, self.side.has(mark::HEAD_CUT) || self.position.head.is_none()),
            (Count::Encoded, facts.encoding == Encoding::Other || facts.has_too_many),
            (Count::Partial, head.status == 206 || facts.is_partial && self.direction == 0),
            (Count::NoTransform, is_fixed),
        ];
        all.into_iter().find(|(_, is)| *is).map(|(why, _)| why)
    }

    /// Settles the length of an edited body that has one.
    fn settle_length(&mut self, head: &Head, len: u64, edits: &BodyEdits, facts: &Facts) -> Settled {
        let is_small = len <= MOST_WAITING as u64 && facts.encoding == Encoding::None;
        let at = self.position.at;
        let body = usize::try_from(len).ok().and_then(|len| self.bytes.get(at..at.checked_add(len)?));
        let plan = &mut self.scratch.plan;
        let new = body.filter(|_| is_small).and_then(|body| edited_len(edits, body, plan));
        if let Some(new) = new {
            if let Some((_, value)) = facts.length.clone() {
                plan.replace(value, |text| write(text, format_args!("{new}")));
            }
            return Settled::As(Treatment::Replace, false);
        }
        if self.direction == 0 && is_small && body.is_none() && self.can_hold && !facts.expects {
            self.position.end = Some(at + len as usize);
            return Settled::Waits;
        }
        if head.minor == 1 && !self.connection.is_http10() {
            return Settled::As(Treatment::Chunk, true);
        }
        match self.direction == 1 && (facts.closes || head.minor == 0 && !facts.keeps_open) {
            true => Settled::As(Treatment::Replace, true),
            false => Settled::No,
        }
    }

    /// Takes a decoder for a body, if it is encoded. Returns false if there is none.
    fn open_decoder(&mut self, facts: &Facts) -> bool {
        let Encoding::One(coding) = facts.encoding else { return true };
        let decoder = self.scratch.decoders.open(coding);
        self.side.set_decoder(decoder.unwrap_or(0));
        self.counts.add(Count::Decoded, decoder.is_some());
        decoder.is_some()
    }

    /// Plans the changes of lines that describe a body which is edited.
    fn change_descriptions(&mut self, facts: Facts, (is_decoded, removes_length): (bool, bool)) {
        let Scratch { plan, .. } = &mut *self.scratch;
        facts.removed().for_each(|line| plan.remove(line));
        if let Some((line, _)) = facts.length.filter(|_| removes_length) {
            plan.remove(line);
        }
        if let Some(line) = facts.encoding_line.filter(|_| is_decoded) {
            plan.remove(line);
        }
        if let Some(etag) = facts.etag.filter(|etag| self.bytes.get(etag.start) == Some(&b'"')) {
            plan.insert(etag.start, b"W/");
        }
    }
}
