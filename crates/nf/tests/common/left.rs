//! Segments that leave a chain, in the numbers of their connection.

use mmb_nf::ChainVerdict;
use mmb_nf::harness::Sent;

/// Offset of the TCP header of IPv4.
const TCP: usize = 34;

/// A segment that has left: distance of its numbers from the first bytes, flags and payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Left {
    pub direction: usize,
    pub from: i32,
    pub acked: i32,
    pub flags: u8,
    pub bytes: Vec<u8>,
}

/// Returns what has left, over IPv4 and between a client and port 80. `initial`: the numbers of the SYNs, by
/// direction.
pub fn left(sent: &[Sent], initial: [u32; 2]) -> Vec<Left> {
    let mut all = Vec::new();
    for sent in sent {
        let passed = (sent.verdict == ChainVerdict::Pass).then_some(&sent.frame);
        for frame in sent.emitted.iter().map(|(_, frame)| frame).chain(passed) {
            mmb_nf::testing::assert_checksums(frame);
            let tcp = &frame[TCP..];
            let direction = usize::from(tcp[..2] == [0, 80]);
            let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four"));
            let len = usize::from(u16::from_be_bytes([frame[16], frame[17]])) + 14;
            all.push(Left {
                direction,
                from: number(4).wrapping_sub(initial[direction]) as i32,
                acked: number(8).wrapping_sub(initial[1 - direction]) as i32,
                flags: tcp[13],
                bytes: frame[TCP + usize::from(tcp[12] >> 4) * 4..len].to_vec(),
            });
        }
    }
    all
}
