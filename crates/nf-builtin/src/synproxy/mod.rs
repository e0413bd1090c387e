//! `synproxy`: no state for a TCP connection until its client has proved its address.
//!
//! Theory of operation. A SYN is answered with a sequence number that is a cookie ([`cookie`]) and a window
//! of zero, and no state is kept ([`handshake`]). A client that acknowledges the cookie is real: the segment
//! is turned into the SYN that the client has sent before, opens the session, and goes to the server. The
//! server's SYN is acknowledged here ([`join`]), and goes to the client as the acknowledgment that opens its
//! window. From then on client and server talk to each other. The engine translates sequence numbers, as the
//! server's differ from the cookie (RFC 4987, section 3.5, "half proxy"). This function translates what else
//! was promised to the client before the server was known: timestamps, and windows if the server's scale
//! differs.
//!
//! Segments without a session that acknowledge no cookie are dropped. If a client sends again while the
//! server has not answered, the SYN is sent again; there is no timer for it.

mod cookie;
mod handshake;
mod join;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mmb_flow::TcpSegment;
use mmb_packet::PacketFlags;

use cookie::Cookies;
use join::Pad;
use mmb_nf::tcp_segment::{ACK, FIN, RST, SYN};
use mmb_nf::{
    Admission, ArgError, Context, DropReason, Function, OpeningPacket, Packet, Properties, Setup, Translates,
    Verdict,
};

/// Answers SYNs for servers.
pub(crate) struct Synproxy {
    cookies: Cookies,
    promise: Promise,
    counts: Counts,
}

/// What clients are promised before the server is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Promise {
    /// Maximum segment size. None: the one of Ethernet.
    mss: Option<u16>,
    /// Window scale.
    scale: u8,
    sack: bool,
    timestamps: bool,
}

/// Counters of the instance.
#[derive(Debug, Default)]
struct Counts {
    /// Servers that have answered.
    joined: AtomicU64,
    /// SYNs that were sent again.
    again: AtomicU64,
    /// Servers that have refused.
    refused: AtomicU64,
    /// Servers that do not support what was promised.
    lacking: AtomicU64,
}

/// Largest window scale (RFC 7323, 2.3).
const MOST_SCALE: u8 = 14;
/// Least maximum segment size: the one that IPv4 hosts have to accept (RFC 9293, 3.7.1).
const LEAST_MSS: u16 = 536;

impl Promise {
    fn parse(words: &[&str]) -> Result<Promise, ArgError> {
        let mut promise = Promise { mss: None, scale: 7, sack: true, timestamps: true };
        let mut rest = words;
        while let [word, behind @ ..] = rest {
            rest = match (*word, behind) {
                ("mss", [number, rest @ ..]) => {
                    let mss = number.parse().ok().filter(|mss| *mss >= LEAST_MSS);
                    let wrong = || format!("`mss {number}` is not a number from {LEAST_MSS} to 65535");
                    promise.mss = Some(mss.ok_or_else(wrong)?);
                    rest
                }
                ("window-scale", [number, rest @ ..]) => {
                    let scale = number.parse().ok().filter(|scale| *scale <= MOST_SCALE);
                    let wrong = || format!("`window-scale {number}` is not a number from 0 to {MOST_SCALE}");
                    promise.scale = scale.ok_or_else(wrong)?;
                    rest
                }
                ("no-sack", rest) => {
                    promise.sack = false;
                    rest
                }
                ("no-timestamps", rest) => {
                    promise.timestamps = false;
                    rest
                }
                ("mss" | "window-scale", _) => return Err(format!("`{word}` is followed by a number").into()),
                _ => {
                    return Err(
                        format!("`{word}` is not understood: `synproxy` takes {}", Synproxy::USAGE).into()
                    );
                }
            };
        }
        Ok(promise)
    }
}

impl Function for Synproxy {
    const TYPE: &'static str = "synproxy";
    const USAGE: &'static str = "[mss N] [window-scale N] [no-sack] [no-timestamps]";
    const HELP: &'static str = "answers TCP SYNs with cookies, and lets through who acknowledges them";

    type Pad = Pad;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let promise = Promise::parse(setup.args)?;
        Ok(Synproxy { cookies: Cookies::new(setup.seed), promise, counts: Counts::default() })
    }

    fn properties(&self) -> Properties {
        let translates = Translates { sequence_numbers: true, ..Translates::default() };
        Properties { accepts: "tcp-sport".to_owned(), translates, ..Properties::default() }
    }

    fn admit(&self, first: &mut OpeningPacket<'_>, (): &mut ()) -> Admission {
        // Fragments cannot connect, nor packets with routing headers, whose checksum covers another
        // destination.
        let plain = !first.meta.flags.intersects(PacketFlags::FRAGMENT | PacketFlags::ROUTED);
        let segment = TcpSegment::read(first.packet.head(), first.meta).filter(|_| plain);
        let Some(segment) = segment else { return Admission::Drop(DropReason::SynCookieBad) };
        match segment.flags & (SYN | ACK | FIN | RST) {
            SYN => self.syn(first, &segment),
            ACK => self.acknowledged(first, &segment),
            // The acknowledgment was lost, and the client has nothing to send.
            flags if flags == ACK | FIN => self.acknowledged(first, &segment),
            // Hosts whose addresses were forged answer the SYN-ACK by a RST.
            RST => Admission::Drop(DropReason::SynCookie),
            _ => Admission::Drop(DropReason::SynCookieBad),
        }
    }

    fn packet(&self, packet: &mut Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, ()>) -> Verdict {
        self.joined(packet, pad, cx)
    }

    fn report(&self) -> Vec<(String, String)> {
        let Promise { mss, scale, sack, timestamps } = self.promise;
        let yes = |is: bool| if is { "yes" } else { "no" };
        let mss = mss.map_or_else(|| "of Ethernet".to_owned(), |mss| mss.to_string());
        let count = |count: &AtomicU64| count.load(Relaxed).to_string();
        [
            ("mss", mss),
            ("window-scale", scale.to_string()),
            ("sack", yes(sack).to_owned()),
            ("timestamps", yes(timestamps).to_owned()),
            ("servers-joined", count(&self.counts.joined)),
            ("servers-refused", count(&self.counts.refused)),
            ("servers-lacking-options", count(&self.counts.lacking)),
            ("syns-sent-again", count(&self.counts.again)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
