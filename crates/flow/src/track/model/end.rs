//! TCP as RFC 9293 (3.10.7) describes it, in its simplest form: payload without content, retransmission of
//! all unacknowledged data, no reassembly.

use crate::track::TcpSegment;

const MSS: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
}

#[derive(Clone, Debug)]
pub struct End {
    pub phase: Phase,
    iss: u32,
    /// Oldest unacknowledged number; next number to send; one past the highest number sent.
    pub una: u32,
    nxt: u32,
    sent: u32,
    /// Window offered by the peer, from `una` on.
    room: u32,
    rcv_nxt: u32,
    /// Bytes received and not read, and the size of the buffer.
    pub unread: u32,
    buffer: u32,
    scale: Option<u8>,
    scales: Option<[u8; 2]>,
    /// Sequence number after the data that the application has written; whether the application has closed;
    /// whether the peer has.
    pub written: u32,
    pub closed: bool,
    peer_closed: bool,
    /// A RST has been received or sent.
    pub reset: bool,
}

fn less(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl End {
    pub fn new(iss: u32, phase: Phase, scale: Option<u8>, buffer: u32) -> Self {
        End {
            phase,
            iss,
            una: iss,
            nxt: iss,
            sent: iss,
            room: 0,
            rcv_nxt: 0,
            unread: 0,
            buffer,
            scale,
            scales: None,
            written: iss.wrapping_add(1),
            closed: false,
            peer_closed: false,
            reset: false,
        }
    }

    fn window(&self, syn: bool) -> u16 {
        let scale = if syn { 0 } else { self.scales.map_or(0, |[own, _]| own) };
        u16::try_from((self.buffer - self.unread) >> scale).unwrap_or(u16::MAX)
    }

    fn segment(&self, flags: u8, seq: u32, len: u32) -> TcpSegment {
        let syn = flags & TcpSegment::SYN != 0;
        let ack = if flags & TcpSegment::ACK != 0 { self.rcv_nxt } else { 0 };
        let scale = self.scale.filter(|_| syn);
        TcpSegment { seq, ack, len, window: self.window(syn), flags, scale }
    }

    /// The segments to send now; retransmissions if `again`.
    pub fn output(&mut self, again: bool) -> Vec<TcpSegment> {
        if again {
            self.nxt = self.una;
        }
        let mut out = match self.phase {
            Phase::SynSent if self.nxt == self.iss => vec![self.segment(TcpSegment::SYN, self.iss, 0)],
            Phase::SynReceived if self.nxt == self.iss => {
                vec![self.segment(TcpSegment::SYN | TcpSegment::ACK, self.iss, 0)]
            }
            Phase::Established => self.data(again),
            _ => vec![],
        };
        if matches!(self.phase, Phase::SynSent | Phase::SynReceived) {
            self.nxt = self.iss.wrapping_add(1);
        }
        if less(self.sent, self.nxt) {
            self.sent = self.nxt;
        }
        out.truncate(20);
        out
    }

    fn data(&mut self, probe: bool) -> Vec<TcpSegment> {
        let mut out = vec![];
        let edge = self.una.wrapping_add(self.room.max(probe.into()));
        while less(self.nxt, self.written) && less(self.nxt, edge) {
            let len = MSS.min(self.written.wrapping_sub(self.nxt)).min(edge.wrapping_sub(self.nxt));
            out.push(self.segment(TcpSegment::ACK, self.nxt, len));
            self.nxt = self.nxt.wrapping_add(len);
        }
        if self.closed && self.nxt == self.written {
            out.push(self.segment(TcpSegment::FIN | TcpSegment::ACK, self.nxt, 0));
            self.nxt = self.nxt.wrapping_add(1);
        }
        out
    }

    pub fn acknowledgement(&self) -> Vec<TcpSegment> {
        vec![self.segment(TcpSegment::ACK, self.sent, 0)]
    }

    pub fn abort(&mut self) -> Vec<TcpSegment> {
        let rst = self.segment(TcpSegment::RST | TcpSegment::ACK, self.sent, 0);
        let speaks = matches!(self.phase, Phase::SynReceived | Phase::Established);
        (self.phase, self.reset) = (Phase::Closed, true);
        if speaks { vec![rst] } else { vec![] }
    }

    /// Whether the end could use a segment in any way.
    pub fn can_use(&self, s: &TcpSegment) -> bool {
        let right = self.rcv_nxt.wrapping_add(self.buffer);
        if s.has(TcpSegment::RST) {
            return s.seq == self.rcv_nxt && self.phase == Phase::Established;
        }
        let new_data = less(self.rcv_nxt, s.end()) && !less(self.rcv_nxt, s.seq) && !less(right, s.seq);
        match self.phase {
            // It would only answer that it is closed.
            Phase::Closed => false,
            Phase::Established => new_data || less(self.una, s.ack),
            _ => true,
        }
    }

    pub fn receive(&mut self, s: &TcpSegment) -> Vec<TcpSegment> {
        match self.phase {
            Phase::Closed if s.has(TcpSegment::RST) => vec![],
            Phase::Closed if s.has(TcpSegment::ACK) => {
                vec![TcpSegment { seq: s.ack, flags: TcpSegment::RST, ..TcpSegment::default() }]
            }
            Phase::Closed => {
                let flags = TcpSegment::RST | TcpSegment::ACK;
                vec![TcpSegment { ack: s.end(), flags, ..TcpSegment::default() }]
            }
            Phase::Listen => self.listen(s),
            Phase::SynSent => self.syn_sent(s),
            Phase::SynReceived | Phase::Established => self.synchronized(s),
        }
    }

    fn listen(&mut self, s: &TcpSegment) -> Vec<TcpSegment> {
        if s.is(TcpSegment::SYN) {
            self.synchronize(s);
            self.phase = Phase::SynReceived;
            return self.output(false);
        }
        let stray = s.has(TcpSegment::ACK) && !s.has(TcpSegment::RST);
        let rst = TcpSegment { seq: s.ack, flags: TcpSegment::RST, ..TcpSegment::default() };
        if stray { vec![rst] } else { vec![] }
    }

    fn synchronize(&mut self, s: &TcpSegment) {
        self.rcv_nxt = s.seq.wrapping_add(1);
        self.room = s.window.into();
        self.scales = self.scale.zip(s.scale).map(|(own, peers)| [own, peers]);
    }

    fn syn_sent(&mut self, s: &TcpSegment) -> Vec<TcpSegment> {
        let acknowledged = s.has(TcpSegment::ACK) && s.ack == self.sent;
        if s.has(TcpSegment::ACK) && !acknowledged {
            let rst = TcpSegment { seq: s.ack, flags: TcpSegment::RST, ..TcpSegment::default() };
            return if s.has(TcpSegment::RST) { vec![] } else { vec![rst] };
        }
        if s.has(TcpSegment::RST) {
            if acknowledged {
                (self.phase, self.reset) = (Phase::Closed, true);
            }
            return vec![];
        }
        if !s.has(TcpSegment::SYN) {
            return vec![];
        }
        self.synchronize(s);
        if acknowledged {
            (self.phase, self.una) = (Phase::Established, s.ack);
            return self.acknowledgement();
        }
        (self.phase, self.nxt) = (Phase::SynReceived, self.iss);
        self.output(false)
    }

    fn synchronized(&mut self, s: &TcpSegment) -> Vec<TcpSegment> {
        let offered = self.buffer - self.unread;
        // The right edge counts too, as in Linux. Otherwise two ends that have filled each other's window,
        // and lost those segments, would never recover.
        let right = self.rcv_nxt.wrapping_add(offered);
        if less(s.end(), self.rcv_nxt) || less(right, s.seq) {
            return if s.has(TcpSegment::RST) { vec![] } else { self.acknowledgement() };
        }
        if s.has(TcpSegment::RST) {
            if s.seq == self.rcv_nxt {
                (self.phase, self.reset) = (Phase::Closed, true);
                return vec![];
            }
            return self.acknowledgement();
        }
        if s.is(TcpSegment::SYN) || less(self.sent, s.ack) {
            return self.acknowledgement();
        }
        if less(self.una, s.ack) {
            self.una = s.ack;
            self.phase = Phase::Established;
        }
        if less(self.nxt, self.una) {
            self.nxt = self.una;
        }
        if s.ack == self.una && !s.has(TcpSegment::SYN) {
            self.room = u32::from(s.window) << self.scales.map_or(0, |[_, peers]| peers);
        }
        self.take(s, offered)
    }

    fn take(&mut self, s: &TcpSegment, offered: u32) -> Vec<TcpSegment> {
        if s.end() == s.seq || self.phase != Phase::Established || less(self.rcv_nxt, s.seq) {
            return if s.end() == s.seq { vec![] } else { self.acknowledgement() };
        }
        let known = self.rcv_nxt.wrapping_sub(s.seq);
        let new = (s.data_end().wrapping_sub(s.seq).saturating_sub(known)).min(offered);
        self.rcv_nxt = self.rcv_nxt.wrapping_add(new);
        self.unread += new;
        if s.has(TcpSegment::FIN) && self.rcv_nxt == s.data_end() && !self.peer_closed {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
            self.peer_closed = true;
        }
        self.acknowledgement()
    }
}
