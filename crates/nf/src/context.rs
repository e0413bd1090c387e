//! What surrounds a function that is at work.

/// Where a frame that a function makes goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitTarget {
    /// Out by this port.
    Port(u16),
    /// Out by the port at which the packet (when a session begins or ends: its first packet) came in.
    Ingress,
    /// Where the packet goes. Means nothing when a session begins or ends: there is no packet.
    Egress,
}

/// What surrounds a function that is at work.
#[derive(Debug)]
pub struct Context<'a, L> {
    /// Milliseconds of the worker's clock; wraps.
    pub now: u32,
    /// The worker's number.
    pub worker: u16,
    /// What the worker keeps for the instance.
    pub local: &'a mut L,
    pub(crate) emissions: &'a mut Emissions,
    /// The packet's position.
    pub(crate) at: Option<u8>,
    /// The port of [`EmitTarget::Ingress`] where there is no packet.
    pub(crate) back: u16,
}

impl<L> Context<'_, L> {
    /// Sends a frame, of which a copy is made, from its Ethernet header on. It meets no rule and no chain. At most
    /// [`Emissions::MOST`] in a vector are; what is more is not sent, and counted.
    pub fn emit(&mut self, to: EmitTarget, frame: &[u8]) {
        self.emissions.push(to, self.at, self.back, frame);
    }
}

/// A frame that a function has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emission<'a> {
    /// The port it goes out at, or [`mmb_packet::OUT_ROUTED`].
    pub out_port: u16,
    /// The port by which the packet came in (or the session's first packet).
    pub in_port: u16,
    /// The position of that packet in its vector; none: a session began or ended.
    pub packet: Option<u8>,
    /// The frame.
    pub frame: &'a [u8],
}

/// Frames that functions have made, in the order in which they did. The buffers are used again.
#[derive(Debug, Default)]
pub struct Emissions {
    notes: Vec<Note>,
    bytes: Vec<u8>,
    lost: u64,
    /// Where the notes begin whose packets' ports are not known yet.
    open: usize,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    to: EmitTarget,
    out_port: u16,
    in_port: u16,
    packet: Option<u8>,
    /// Sessions of the chain are translated in it, and whether the function's place is behind that for the opener.
    behind: Option<bool>,
    at: usize,
    len: usize,
}

impl Emissions {
    /// Most frames that wait to be sent.
    pub const MOST: usize = 1024;
    /// Most bytes of them.
    const BYTES: usize = 4 << 20;

    fn push(&mut self, to: EmitTarget, packet: Option<u8>, back: u16, frame: &[u8]) {
        let nowhere = packet.is_none() && to == EmitTarget::Egress;
        let at = self.bytes.len();
        if nowhere || self.notes.len() >= Self::MOST || at + frame.len() > Self::BYTES {
            self.lost += 1;
            return;
        }
        let out_port = match to {
            EmitTarget::Port(port) => port,
            EmitTarget::Ingress | EmitTarget::Egress => back,
        };
        self.bytes.extend_from_slice(frame);
        self.notes.push(Note { to, out_port, in_port: back, packet, behind: None, at, len: frame.len() });
    }

    /// Says where the function stands that has made all but the first frames.
    pub(crate) fn mark(&mut self, first: usize, translates: bool, behind: bool) {
        for note in self.notes.iter_mut().skip(first) {
            note.behind = translates.then_some(behind);
        }
    }

    /// Has frames that functions of translated sessions have sent `Back` or `Onward` translated: `f` is told the packet's
    /// position, whether the frame goes on where the packet goes, whether the function stands behind the translation, and
    /// the frame; false: the frame is not sent.
    pub(crate) fn translate(&mut self, mut f: impl FnMut(u8, bool, bool, &mut [u8]) -> bool) {
        let Emissions { notes, bytes, lost, open, .. } = self;
        notes.retain_mut(|note| {
            let (Some(packet), Some(behind)) = (note.packet, note.behind.take()) else { return true };
            let frame = bytes.get_mut(note.at..note.at + note.len).unwrap_or(&mut []);
            let sent = matches!(note.to, EmitTarget::Port(_))
                || f(packet, note.to == EmitTarget::Egress, behind, frame);
            *lost += u64::from(!sent);
            sent
        });
        *open = notes.len();
    }

    /// Says the ports of the packets that the last frames were made for: in port and out port by position.
    pub(crate) fn resolve(&mut self, ports: impl Fn(u8) -> Option<(u16, u16)>) {
        let open = std::mem::replace(&mut self.open, self.notes.len());
        for note in self.notes.iter_mut().skip(open) {
            if let Some((in_port, out_port)) = note.packet.and_then(&ports) {
                note.in_port = in_port;
                match note.to {
                    EmitTarget::Port(_) => {}
                    EmitTarget::Ingress => note.out_port = in_port,
                    EmitTarget::Egress => note.out_port = out_port,
                }
            }
        }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.notes.len()
    }

    /// The frames.
    pub fn iter(&self) -> impl Iterator<Item = Emission<'_>> {
        self.notes.iter().map(|note| Emission {
            out_port: note.out_port,
            in_port: note.in_port,
            packet: note.packet,
            frame: self.bytes.get(note.at..note.at + note.len).unwrap_or(&[]),
        })
    }

    /// Forgets them: they are sent.
    pub fn clear(&mut self) {
        self.notes.clear();
        self.bytes.clear();
        self.open = 0;
    }

    /// Frames that were not kept for want of room, or since they had nowhere to go.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: fn(u8) -> Option<(u16, u16)> = |at| Some((10 + u16::from(at), 20 + u16::from(at)));

    fn sent(emissions: &Emissions) -> Vec<(u16, u16, Option<u8>, Vec<u8>)> {
        let one = |e: Emission<'_>| (e.out_port, e.in_port, e.packet, e.frame.to_vec());
        emissions.iter().map(one).collect()
    }

    #[test]
    fn ports_are_those_of_the_packet() {
        let mut emissions = Emissions::default();
        emissions.push(EmitTarget::Ingress, None, 5, b"end");
        emissions.push(EmitTarget::Egress, None, 5, b"nowhere");
        emissions.push(EmitTarget::Ingress, Some(1), 0, b"back");
        emissions.push(EmitTarget::Egress, Some(2), 0, b"on");
        emissions.push(EmitTarget::Port(7), Some(3), 0, b"port");
        emissions.resolve(PORTS);
        let end = (5, 5, None, b"end".to_vec());
        let others = [
            (11, 11, Some(1), b"back".to_vec()),
            (22, 12, Some(2), b"on".to_vec()),
            (7, 13, Some(3), b"port".to_vec()),
        ];
        assert_eq!(sent(&emissions), [&[end], &others[..]].concat());
        assert_eq!(emissions.lost(), 1);
        emissions.clear();
        assert!(emissions.is_empty());
    }

    /// Only those of chains that translate, to where the packet is from or goes; and what cannot be is not sent.
    #[test]
    fn frames_are_translated_once() {
        let mut emissions = Emissions::default();
        emissions.push(EmitTarget::Egress, Some(0), 0, b"aa");
        emissions.mark(0, false, false);
        emissions.push(EmitTarget::Egress, Some(1), 0, b"bb");
        emissions.push(EmitTarget::Ingress, Some(2), 0, b"cc");
        emissions.push(EmitTarget::Port(9), Some(3), 0, b"dd");
        emissions.mark(1, true, true);
        emissions.resolve(PORTS);
        for _ in 0..2 {
            emissions.translate(|at, onward, behind, frame| {
                assert_eq!((at, onward, behind), if at == 1 { (1, true, true) } else { (2, false, true) });
                frame.fill(b'x');
                at == 1
            });
            let frames: Vec<_> = sent(&emissions).into_iter().map(|(_, _, _, frame)| frame).collect();
            assert_eq!(frames, [b"aa", b"xx", b"dd"]);
        }
        assert_eq!(emissions.lost(), 1);
    }

    #[test]
    fn there_is_a_bound() {
        let mut emissions = Emissions::default();
        (0..Emissions::MOST + 5).for_each(|_| emissions.push(EmitTarget::Port(1), None, 0, &[0; 60]));
        assert_eq!((emissions.len(), emissions.lost()), (Emissions::MOST, 5));
    }
}
