//! Packets of a ClassBench trace (Taylor, Turner 2007). A line has source and destination address, source and
//! destination port, and protocol, as decimal numbers. Further words are ignored.

use std::net::Ipv4Addr;

use mmb_packet::build::{Frame, Icmp, Ip4, Tcp, Transport, Udp};

/// A line that is not a packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not a packet of a ClassBench trace")]
pub struct NotAPacket {
    /// Number of the line, from 1.
    line: usize,
}

/// The frames of a trace, padded to `size` bytes.
///
/// # Errors
/// The first line that is not a packet.
pub fn frames(text: &str, size: usize) -> Result<Vec<Vec<u8>>, NotAPacket> {
    let packets = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    packets.map(|(at, line)| frame(line, size).ok_or(NotAPacket { line: at + 1 })).collect()
}

fn frame(line: &str, size: usize) -> Option<Vec<u8>> {
    let mut words = line.split_whitespace();
    let mut number = |max: u32| words.next()?.parse::<u32>().ok().filter(|&n| n <= max);
    let [source, destination] = [number(u32::MAX)?, number(u32::MAX)?];
    let [sport, dport] = [number(0xffff)? as u16, number(0xffff)? as u16];
    let transport = match number(0xff)? {
        6 => Transport::Tcp(Tcp::new(sport, dport)),
        17 => Transport::Udp(Udp::new(sport, dport)),
        1 => Transport::Icmp(Icmp::new(8)),
        other => Transport::Raw(other as u8),
    };
    let [source, destination] = [source, destination].map(|address| Ipv4Addr::from(address).octets());
    Some(Frame::new(Ip4::new(source, destination), transport).pad_to(size).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_packets() {
        let text = "167772161\t3221225985\t1024\t80\t6\t0\t7\n\n4294967295 0 65535 0 17 0 1\n1 2 3 4 47\n";
        let frames = frames(text, 64).unwrap();
        assert_eq!(frames.len(), 3);
        assert!(frames.iter().all(|frame| frame.len() == 64));
        assert_eq!(frames[0][23], 6);
        assert_eq!(frames[0][26..38], [10, 0, 0, 1, 192, 0, 2, 1, 4, 0, 0, 80]);
        assert_eq!((frames[1][23], frames[2][23]), (17, 47));
    }

    #[test]
    fn other_lines_are_refused_with_their_number() {
        for bad in ["1 2 3 4", "@1.2.3.4/32", "1 2 3 65536 6", "1 2 3 4 256", "-1 2 3 4 5"] {
            let error = frames(&format!("1 2 3 4 6\n{bad}\n"), 64).unwrap_err();
            assert!(error.to_string().contains("line 2"), "{error}");
        }
    }
}
