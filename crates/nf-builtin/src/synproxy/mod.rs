//! `synproxy`: no state for a TCP connection until its client has proved its address.
//!
//! Theory of operation. A SYN is answered with a sequence number that is a cookie and a window of zero,
//! and no state is kept ([`crate::shared::handshake`]). A client that acknowledges the cookie is real:
//! the segment is turned into the SYN that the client has sent before, opens the session, and goes to the
//! server. The server's SYN is acknowledged here ([`join`]), and goes to the client as the acknowledgment
//! that opens its window. From then on client and server talk to each other. The engine translates
//! sequence numbers, as the server's differ from the cookie (RFC 4987, section 3.5, "half proxy"). This
//! function translates what else was promised to the client before the server was known: timestamps, and
//! windows if the server's scale differs.
//!
//! Segments without a session that acknowledge no cookie are dropped. If a client sends again while the
//! server has not answered, the SYN is sent again; there is no timer for it.

mod join;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mmb_flow::TcpSegment;

use crate::shared::handshake::{Handshake, Promise, Splice, segment_of, state};
use mmb_nf::tcp_segment::{ACK, FIN, RST, SYN};
use mmb_nf::{
    Admission, ArgError, ConstantRewrite, Context, DropReason, Function, OpeningPacket, Packet, Properties,
    Setup, Translates, Verdict,
};
use mmb_packet::Meta;

/// Answers SYNs for servers.
pub(crate) struct Synproxy {
    handshake: Handshake,
    counts: Counts,
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

impl Function for Synproxy {
    const TYPE: &'static str = "synproxy";
    const USAGE: &'static str = Promise::USAGE;
    const HELP: &'static str = "answers TCP SYNs with cookies, and lets through who acknowledges them";

    type Pad = Splice;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let (mut promise, mut words) = (Promise::default(), setup.args);
        while let [word, ..] = words {
            let unknown = || format!("`{word}` is not understood: `synproxy` takes {}", Synproxy::USAGE);
            words = promise.option(words)?.ok_or_else(unknown)?;
        }
        Ok(Synproxy { handshake: Handshake::new(setup.seed, promise), counts: Counts::default() })
    }

    fn properties(&self) -> Properties {
        let translates = Translates { sequence_numbers: true, ..Translates::default() };
        let accepts = "tcp-sport".to_owned();
        Properties { accepts, translates, takes_large_frames: true, ..Properties::default() }
    }

    fn admit(&self, first: &mut OpeningPacket<'_>, (): &mut ()) -> Admission {
        let Some(segment) = segment_of(first) else { return Admission::Drop(DropReason::SynCookieBad) };
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

    fn packet(&self, packet: &mut Packet<'_>, pad: &mut Splice, cx: &mut Context<'_, ()>) -> Verdict {
        self.joined(packet, pad, cx)
    }

    fn constant_rewrite(&self, pad: &Splice) -> Option<ConstantRewrite> {
        // Without a state, the connection is older than the function in its chain.
        (pad.state != state::WAITING).then(|| pad.constant_rewrite())
    }

    fn translate_sent(&self, head: &mut [u8], meta: &Meta, pad: &Splice) {
        pad.translate_sent(head, meta);
    }

    fn report(&self) -> Vec<(String, String)> {
        let Promise { mss, scale, sack, timestamps } = self.handshake.promise;
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

impl Synproxy {
    /// Answers a SYN, and closes the window until the server has answered. A SYN that another worker has made
    /// from an acknowledgment opens the session.
    fn syn(&self, first: &mut OpeningPacket<'_>, syn: &TcpSegment) -> Admission {
        match self.handshake.cookie_of_syn(first, syn) {
            Some(cookie) => {
                first.translation.proxied_isn = Some(cookie);
                Admission::Open
            }
            None => self.handshake.answer(first, syn, 0),
        }
    }

    /// Checks a segment without a session that acknowledges something. If that is a cookie, it is turned into
    /// the SYN that its sender has sent before.
    fn acknowledged(&self, first: &mut OpeningPacket<'_>, segment: &TcpSegment) -> Admission {
        let Some(proven) = self.handshake.proven(first, segment) else {
            return Admission::Drop(DropReason::SynCookieBad);
        };
        match self.handshake.become_syn(first, segment, proven) {
            true => Admission::Open,
            false => Admission::Drop(DropReason::NoBuffer),
        }
    }
}
