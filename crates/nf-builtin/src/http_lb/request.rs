//! Requests of clients that have no session yet: they are read, and a server is chosen.

use mmb_flow::TcpSegment;
use mmb_http::{Cause, Connection, Event, Target, normalize_path};

use super::heads::{AnswerKind, Head, HeadSet, MOST_HEAD, Phase};
use super::{Counter, HttpLb, Local, WINDOW};
use crate::shared::handshake::replace;
use crate::shared::http_rules::Request;
use mmb_nf::tcp_segment::{ACK, FIN, OutgoingSegment, PSH, SegmentTo, reset, timestamp};
use mmb_nf::{Admission, DropReason, OpeningPacket};

/// Milliseconds from the answer to a SYN after which a segment that proves nothing is reset. A cookie is
/// valid for at least so long, so that the segment did not only arrive before another one.
const STRAY_AGE: u32 = 65_536;

/// What the new bytes of a head have brought.
enum Read {
    More,
    Complete,
    Invalid(Cause),
}

/// Returns how far a number is ahead of another one.
fn ahead(number: u32, of: u32) -> i32 {
    number.wrapping_sub(of) as i32
}

impl HttpLb {
    /// A segment that acknowledges something, of a client without session.
    pub(super) fn request(
        &self,
        first: &mut OpeningPacket<'_>,
        segment: &TcpSegment,
        local: &mut Local,
    ) -> Admission {
        let key = *first.key;
        let taken = self.heads.with(&key, |set| self.request_in(set, first, segment, local));
        taken.unwrap_or(Admission::Drop(self.read))
    }

    fn request_in(
        &self,
        set: &mut HeadSet,
        first: &mut OpeningPacket<'_>,
        segment: &TcpSegment,
        local: &mut Local,
    ) -> Admission {
        let found =
            set.find(first.key).filter(|&way| set.get(way).is_some_and(|(head, _)| is_of(head, segment)));
        let way = match found {
            Some(way) => way,
            None => {
                let Some(proven) = self.handshake.proven(first, segment) else { return self.stray(first) };
                if segment.len == 0 && segment.flags & FIN == 0 {
                    // The end of the handshake.
                    return Admission::Drop(DropReason::SynCookie);
                }
                match set.insert(first.key, proven, first.now, self.timeout) {
                    Some(way) => way,
                    None => {
                        self.count(Counter::Full);
                        return Admission::Drop(self.read);
                    }
                }
            }
        };
        let Some((head, bytes)) = set.get(way) else { return Admission::Drop(self.read) };
        match head.phase {
            Phase::Reading if first.now.wrapping_sub(head.since) > self.timeout => {
                self.count(Counter::Timeout);
                self.begin_answer(head, AnswerKind::Timeout, first)
            }
            Phase::Reading => self.read(head, bytes, first, segment, local),
            Phase::Answered => self.answered(head, first, segment),
            Phase::Complete if segment.len != 0 => self.choose(head, bytes, first, segment, local),
            // The session has not opened.
            Phase::Chosen if segment.len != 0 && !head.has_session => self.open_session(head, first, segment),
            _ => Admission::Drop(self.read),
        }
    }

    /// Takes the new bytes of a segment.
    fn read(
        &self,
        head: &mut Head,
        bytes: &mut [u8],
        first: &mut OpeningPacket<'_>,
        segment: &TcpSegment,
        local: &mut Local,
    ) -> Admission {
        let new = usize::try_from(ahead(head.next(), segment.seq)).ok();
        let new = new.and_then(|skip| payload(first, segment).get(skip..));
        let before = usize::from(head.len);
        if let Some(new) = new.filter(|new| !new.is_empty()) {
            let len = new.len().min(MOST_HEAD - before);
            if let (Some(place), Some(new)) = (bytes.get_mut(before..before + len), new.get(..len)) {
                place.copy_from_slice(new);
                head.len += len as u16;
            }
        }
        let new = bytes.get(before..head.len.into()).unwrap_or(&[]);
        match advance(&mut head.connection, new, |_| {}) {
            Read::Complete => {
                self.count(Counter::Requests);
                head.phase = Phase::Complete;
                self.choose(head, bytes, first, segment, local)
            }
            Read::Invalid(cause) => self.reject(head, cause, first),
            Read::More if usize::from(head.len) == MOST_HEAD => self.reject(head, Cause::HeadTooLong, first),
            Read::More if segment.flags & FIN != 0 && ahead(head.next(), segment.data_end()) >= 0 => {
                // The client sends nothing more.
                head.free();
                self.reset_client(first)
            }
            Read::More => {
                head.acked = head.len;
                self.acknowledge(head, first)
            }
        }
    }

    /// Tells the client what has been received.
    fn acknowledge(&self, head: &Head, first: &mut OpeningPacket<'_>) -> Admission {
        let numbers = [head.proven.cookie.wrapping_add(1), head.next()];
        let window = u32::from(WINDOW - head.len);
        self.send(first, &self.handshake.acknowledgment(first, numbers, window), b"")
    }

    /// Turns a packet into a segment to its sender.
    fn send(&self, first: &mut OpeningPacket<'_>, segment: &OutgoingSegment, payload: &[u8]) -> Admission {
        let frame = segment.frame_with(first.packet.head(), first.meta, SegmentTo::Sender, payload);
        match frame.and_then(|frame| replace(first.packet, first.meta, &[frame.bytes(), payload])) {
            Some(()) => Admission::Answer,
            None => Admission::Drop(DropReason::NoBuffer),
        }
    }

    fn reset_client(&self, first: &mut OpeningPacket<'_>) -> Admission {
        let frame = reset(first.packet.head(), first.meta, SegmentTo::Sender);
        match frame.and_then(|frame| replace(first.packet, first.meta, &[frame.bytes()])) {
            Some(()) => Admission::Answer,
            None => Admission::Drop(DropReason::NoBuffer),
        }
    }

    /// A segment that belongs to no request and proves nothing. If the connection is so old that its cookie
    /// is not valid any more, the client gets a RST.
    fn stray(&self, first: &mut OpeningPacket<'_>) -> Admission {
        let echo = timestamp(first.packet.head(), first.meta).map(|(_, _, echo)| echo);
        let age = echo.filter(|&echo| echo != 0).map_or(0, |echo| ahead(first.now, echo));
        if self.handshake.promise.timestamps && age > STRAY_AGE as i32 {
            return self.reset_client(first);
        }
        Admission::Drop(DropReason::SynCookieBad)
    }

    /// A RST of a client without session.
    pub(super) fn give_up(&self, first: &OpeningPacket<'_>, segment: &TcpSegment) -> Admission {
        self.heads.with(first.key, |set| {
            if let Some((head, _)) = set.find(first.key).and_then(|way| set.get(way)) {
                let is_next = [head.next(), head.received].contains(&segment.seq);
                if is_next && !head.has_session {
                    head.free();
                }
            }
        });
        // Hosts whose addresses were forged answer the SYN-ACK by a RST.
        Admission::Drop(DropReason::SynCookie)
    }

    /// Chooses a server for a complete head, and opens the session.
    fn choose(
        &self,
        head: &mut Head,
        bytes: &[u8],
        first: &mut OpeningPacket<'_>,
        segment: &TcpSegment,
        local: &mut Local,
    ) -> Admission {
        if head.group.is_none() {
            let kept = bytes.get(..head.len.into()).unwrap_or(&[]);
            head.group = match self.group_of(kept, head, local) {
                Ok(Some(group)) => Some(group),
                Ok(None) => {
                    self.count(Counter::Unmatched);
                    return self.begin_answer(head, AnswerKind::Unavailable, first);
                }
                Err(cause) => return self.reject(head, cause, first),
            };
        }
        let group = head.group.unwrap_or(0);
        let Some(backend) = self.pick(group, head, first, local) else {
            self.count(Counter::Unavailable);
            return self.begin_answer(head, AnswerKind::Unavailable, first);
        };
        (head.backend, head.phase, head.since) = (backend, Phase::Chosen, first.now);
        self.open_session(head, first, segment)
    }

    /// Turns the segment into the SYN to the server.
    fn open_session(&self, head: &Head, first: &mut OpeningPacket<'_>, segment: &TcpSegment) -> Admission {
        if !self.handshake.become_syn(first, segment, head.proven) {
            return Admission::Drop(DropReason::NoBuffer);
        }
        self.request_server(first, head.group.unwrap_or(0), head.backend)
    }

    /// Returns the number of the group for a request. None: no clause matches it.
    fn group_of(&self, bytes: &[u8], head: &mut Head, local: &mut Local) -> Result<Option<u8>, Cause> {
        let Local { buffer, path, .. } = local;
        buffer.clear();
        let mut is_head = false;
        let read = self.names.with(|names| {
            advance(&mut Connection::default(), bytes, |event| {
                buffer.push(names, event);
                if let Event::Head(head) = event {
                    is_head = head.request.unwrap_or_default().is_head;
                }
            })
        });
        head.is_head = is_head;
        if !matches!(read, Read::Complete) || buffer.is_truncated() {
            return Err(Cause::HeadTooLong);
        }
        let target = Target::read(buffer.method(), buffer.target(), buffer.values(0).next())?;
        let path = normalize_path(target.path, path).ok_or(Cause::HeadTooLong)?;
        let request = Request { method: buffer.method(), host: target.host, path };
        let found = self.groups.iter().position(|group| {
            let conditions = group.conditions.as_ref();
            conditions.is_none_or(|all| all.match_request(request, |field| buffer.values(field)))
        });
        Ok(found.map(|group| group as u8))
    }

    /// Returns the number of a back end of a group that has not failed for this request.
    fn pick(&self, group: u8, head: &Head, first: &OpeningPacket<'_>, local: &mut Local) -> Option<u16> {
        let backends = &self.groups.get(usize::from(group))?.backends;
        let is_ip4 = first.key.is_ip4();
        let turn = &mut local.turns.get_mut(usize::from(group))?[usize::from(is_ip4)];
        let chosen = backends.choose_number(&first.key.source, is_ip4, *turn)?;
        if head.tried == [0; 4] {
            *turn = turn.wrapping_add(1);
        }
        backends.taking(is_ip4, chosen).find(|&backend| !head.was_tried(backend))
    }

    fn reject(&self, head: &mut Head, cause: Cause, first: &mut OpeningPacket<'_>) -> Admission {
        self.count(Counter::Malformed);
        self.begin_answer(head, Self::answer_to(cause), first)
    }

    /// Answers the client of a packet in the place of a server, and closes.
    fn begin_answer(&self, head: &mut Head, kind: AnswerKind, first: &mut OpeningPacket<'_>) -> Admission {
        (head.phase, head.answer, head.since) = (Phase::Answered, kind, first.now);
        head.received = head.next();
        self.send_answer(head, first)
    }

    /// Sends the answer. It does not acknowledge the end of the request, so that the client repeats that if
    /// the answer is lost.
    fn send_answer(&self, head: &Head, first: &mut OpeningPacket<'_>) -> Admission {
        let numbers = [head.proven.cookie.wrapping_add(1), head.start().wrapping_add(head.acked.into())];
        let segment = self.handshake.acknowledgment(first, numbers, WINDOW.into());
        let answer = self.answer(head.answer, head.is_head);
        self.send(first, &OutgoingSegment { flags: ACK | PSH | FIN, ..segment }, answer)
    }

    /// A segment of a client that is answered.
    fn answered(&self, head: &mut Head, first: &mut OpeningPacket<'_>, segment: &TcpSegment) -> Admission {
        let has_fin = segment.flags & FIN != 0;
        let end = segment.data_end().wrapping_add(has_fin.into());
        if ahead(segment.seq, head.received) <= 0 && ahead(end, head.received) > 0 {
            head.received = end;
        }
        let answer = self.answer(head.answer, head.is_head).len() as u32;
        let whole = head.proven.cookie.wrapping_add(answer + 2);
        if ahead(segment.ack, whole) >= 0 {
            let numbers = [whole, head.received];
            if has_fin && end == head.received {
                head.free();
            }
            return self.send(first, &self.handshake.acknowledgment(first, numbers, WINDOW.into()), b"");
        }
        if segment.len == 0 && !has_fin {
            return Admission::Drop(self.read);
        }
        self.send_answer(head, first)
    }
}

/// Whether a segment is of the connection of a head.
fn is_of(head: &Head, segment: &TcpSegment) -> bool {
    let acked = ahead(segment.ack, head.proven.cookie.wrapping_add(1));
    acked == 0 || head.phase == Phase::Answered && (0..=MOST_HEAD as i32).contains(&acked)
}

/// Returns the payload of a packet, as far as it is contiguous.
fn payload<'a>(first: &'a OpeningPacket<'_>, segment: &TcpSegment) -> &'a [u8] {
    let (head, l4) = (first.packet.head(), usize::from(first.meta.l4_off));
    let from = l4 + head.get(l4 + 12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    let to = (from + segment.len as usize).min(head.len());
    head.get(from..to).unwrap_or(&[])
}

/// Reads bytes of requests up to the end of the first head.
fn advance(connection: &mut Connection, mut bytes: &[u8], mut f: impl FnMut(&Event<'_>)) -> Read {
    loop {
        let (len, event) = connection.next(0, bytes);
        bytes = bytes.get(len..).unwrap_or(&[]);
        f(&event);
        match event {
            Event::More => return Read::More,
            Event::Head(_) => return Read::Complete,
            Event::Invalid(cause) => return Read::Invalid(cause),
            Event::Opaque(_) => return Read::Invalid(Cause::StartLine),
            _ => {}
        }
    }
}
