//! Tests: a TCP connection through a chain whose functions may answer in the place of its server.

use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// Offset of the TCP header in a frame.
const TCP: usize = 34;
pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// A connection through the chain `c`.
pub(crate) struct Talk {
    pub harness: Harness,
    /// The next sequence numbers of both ends, and what they acknowledge.
    pub next: [u32; 2],
    pub acked: [u32; 2],
    /// What the server has got.
    pub passed: Vec<u8>,
}

/// A segment that mmb has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// The server gets it.
    pub to_server: bool,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub payload: Vec<u8>,
}

impl Made {
    /// Returns the payload as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }

    fn read((port, frame): &(u16, Vec<u8>)) -> Made {
        mmb_nf::testing::assert_checksums(frame);
        let number = |at: usize| u32::from_be_bytes(frame[TCP + at..TCP + at + 4].try_into().unwrap());
        let payload = &frame[TCP + usize::from(frame[TCP + 12] >> 4) * 4..];
        Made {
            to_server: *port == mmb_nf::harness::FAR,
            flags: frame[TCP + 13],
            seq: number(4),
            ack: number(8),
            payload: payload.to_vec(),
        }
    }
}

impl Talk {
    pub fn of(lines: &str) -> Talk {
        let harness = Harness::new(crate::registry(), lines).unwrap();
        let mut talk = Talk { harness, next: [100, 500], acked: [500, 100], passed: Vec::new() };
        talk.segment(0, SYN, "");
        talk.segment(1, SYN | ACK, "");
        talk
    }

    /// Sends a segment. Returns the verdict, and what mmb makes beside the bytes that go on to the server.
    pub fn segment(
        &mut self,
        direction: usize,
        flags: u8,
        payload: impl AsRef<[u8]>,
    ) -> (ChainVerdict, Vec<Made>) {
        let payload = payload.as_ref();
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [4000, 80]);
        let (seq, ack) = (self.next[direction], self.acked[direction]);
        let tcp = Tcp { seq, ack, flags, ..Tcp::new(ports[direction], ports[1 - direction]) };
        let net = Ip4::new(ends[direction], ends[1 - direction]);
        let frame = Frame::new(net, tcp).payload(payload.to_vec()).build();
        let sent = self.harness.send("c", &[frame]).remove(0);
        self.next[direction] += payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        let passed = (sent.verdict == ChainVerdict::Pass).then(|| {
            let out = [mmb_nf::harness::NEAR, mmb_nf::harness::FAR][1 - direction];
            Made::read(&(out, sent.frame.clone()))
        });
        let mut made = Vec::new();
        for one in sent.emitted.iter().map(Made::read) {
            if one.to_server && one.flags & RST == 0 {
                self.note(one);
            } else {
                made.push(one);
            }
        }
        passed.into_iter().for_each(|one| self.note(one));
        (sent.verdict, made)
    }

    /// A segment has gone on.
    fn note(&mut self, made: Made) {
        let other = usize::from(made.to_server);
        let end = made.seq + made.payload.len() as u32 + u32::from(made.flags & (SYN | FIN) != 0);
        if end != made.seq {
            self.acked[other] = end;
        }
        if made.to_server {
            self.passed.extend_from_slice(&made.payload);
        }
    }

    pub fn report(&self) -> String {
        let report = self.harness.program().instance("f").unwrap().report();
        report.into_iter().map(|(name, value)| format!("{name} {value}; ")).collect()
    }
}

/// Checks that a packet was dropped for this reason.
pub(crate) fn dropped(verdict: ChainVerdict, name: &str) {
    let reason = match verdict {
        ChainVerdict::Drop(reason) | ChainVerdict::Refuse(reason) | ChainVerdict::End(reason) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason.name(), name);
}
