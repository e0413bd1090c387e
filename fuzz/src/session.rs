//! Properties of sessions and translation for any input. The fuzz target `session` runs them on packets, time
//! and changes of rules from the fuzzer's bytes. Tests of the crate run them on the corpus and on random
//! bytes.
//!
//! * Each packet is sent or dropped once, at once or after a wait. Its length stays, unless `synproxy` has
//!   made a SYN of it. Functions of chains may send more packets.
//! * A packet with valid checksums has valid checksums after translation.
//! * The reply to a translated packet reaches its sender, or is dropped.
//! * A translated packet can be translated back.
//! * When all sessions have ended, nothing is left.

use mmb_flow::{NatConfig, TcpSegment};
use mmb_packet::build::{Frame, Icmp, Ip4, Ip6};
use mmb_packet::{Kind, Meta, PacketBuf, PacketFlags, VecPacket, parse};
use mmb_policy::Policy;
use mmb_session_harness::{Outcome, ProcessedPacket, RuleSet, SessionHarness};

#[path = "session_frames.rs"]
mod frames;
#[path = "session_parts.rs"]
mod parts;
#[path = "session_rules.rs"]
mod rules;

use frames::{build_frame, endpoints, has_valid_checksums, reversed};
use parts::{track_any_segments, translate_any_metadata};
use rules::{FOREVER, SESSIONS, rules};

/// Runs the input `bytes`. Panics if a property does not hold.
pub fn check(bytes: &[u8]) {
    translate_any_metadata(bytes);
    track_any_segments(bytes);
    let Some((&[config, more, workers], steps)) = bytes.split_first_chunk() else { return };
    let workers = 1 + u16::from(workers % 3);
    let first = rules(config, more, workers, None);
    let harness = SessionHarness::new(workers, SESSIONS, 1, first).expect("memory");
    let mut history = History { harness, now: 0, received: 0, finished: 0, last: None };
    history.harness.advance(0);
    history.run(steps);
    history.end();
}

/// A run of the input.
struct History {
    harness: SessionHarness,
    now: u32,
    received: usize,
    finished: usize,
    /// The last packet that was sent, and its output port.
    last: Option<(u16, Vec<u8>)>,
}

impl History {
    fn run(&mut self, mut bytes: &[u8]) {
        while let Some((&[what, a], rest)) = bytes.split_first_chunk() {
            bytes = rest;
            let in_port = u16::from(what >> 7);
            match what & 7 {
                0 => self.wait(u32::from(a) * 100),
                1 => {
                    let (frame, rest) = bytes.split_at(bytes.len().min(a.into()));
                    self.packet(in_port, frame);
                    bytes = rest;
                }
                2 => {
                    let workers = self.harness.workers().len() as u16;
                    let rules = rules(a, what, workers, Some(self.harness.rules()));
                    self.harness.replace_rules(rules);
                }
                3 | 4 => {
                    let Some((details, rest)) = bytes.split_first_chunk() else { return };
                    bytes = rest;
                    let mut frame = build_frame(a, details);
                    if what & 7 == 4
                        && let Some((&[at, value], rest)) = bytes.split_first_chunk()
                    {
                        bytes = rest;
                        let place = usize::from(at) % frame.len();
                        frame[place] = value;
                    }
                    self.packet(in_port, &frame);
                }
                5 => self.send_icmp_error(a),
                6 => self.reply(a),
                _ => self.drop_all(),
            }
        }
    }

    fn drop_all(&mut self) {
        let (workers, rules) = self.harness.workers_mut();
        for sessions in workers {
            while sessions.clear_batch(2, rules) {}
        }
    }

    fn wait(&mut self, milliseconds: u32) {
        self.now += milliseconds;
        let sent = self.harness.advance(self.now);
        self.take(&sent);
    }

    fn take(&mut self, sent: &[ProcessedPacket]) {
        for sent in sent {
            if matches!(sent.outcome, Outcome::Emitted(_)) {
                continue;
            }
            self.finished += 1;
            assert_ne!(sent.outcome, Outcome::Lost);
            if let Outcome::Out(port) = sent.outcome {
                self.last = Some((port, sent.packet.head().to_vec()));
            }
        }
        let waiting = self.received - self.finished;
        assert!(waiting <= 1024, "{waiting} packets wait");
        // Workers borrow room from each other.
        let workers = self.harness.workers();
        let sessions: u64 = workers.iter().map(|sessions| sessions.counters().sessions).sum();
        assert!(sessions <= (SESSIONS * workers.len()) as u64, "{sessions} sessions");
    }

    /// Passes one packet and checks its properties.
    fn packet(&mut self, in_port: u16, frame: &[u8]) {
        self.received += 1;
        let sent = self.harness.process(in_port, VecPacket::new(frame));
        if let [ProcessedPacket { packet, outcome: Outcome::Out(port), .. }] = &sent[..] {
            let out = packet.head();
            if self.harness.rules().chains.chain("guarded").is_some() && out.len() != frame.len() {
                return self.take(&sent);
            }
            assert_eq!(out.len(), frame.len());
            let (mut before, mut after) = (Meta::default(), Meta::default());
            if parse(frame, frame.len(), &mut before).is_ok() && before.kind != Kind::default() {
                assert_eq!(parse(out, out.len(), &mut after), Ok(()));
                assert_eq!((before.kind, before.l4_off, before.end), (after.kind, after.l4_off, after.end));
                let sound = has_valid_checksums(frame, &before);
                assert!(!sound || has_valid_checksums(out, &after), "checksum: {frame:x?} {out:x?}");
                self.check_untranslation(frame, &before, out);
                self.check_reply(frame, &before, *port, out);
            }
        }
        self.take(&sent);
    }

    /// Checks that a translated packet can be translated back, if there is only one worker.
    fn check_untranslation(&self, frame: &[u8], meta: &Meta, out: &[u8]) {
        let ports = matches!(meta.kind.l4(), Kind::TCP | Kind::UDP | Kind::L4_NONE);
        let moved = endpoints(frame, meta) != endpoints(out, meta);
        let whole = !meta.flags.intersects(PacketFlags::LATER_FRAGMENT | PacketFlags::ROUTED);
        if let ([sessions], true) = (self.harness.workers(), ports && moved && whole) {
            let mut back = out.to_vec();
            assert!(sessions.untranslate(&mut back, meta), "{frame:x?} {out:x?}");
            assert_eq!(endpoints(&back, meta), endpoints(frame, meta), "{frame:x?} {out:x?}");
            let sound = has_valid_checksums(frame, meta);
            assert!(!sound || has_valid_checksums(&back, meta), "checksum: {frame:x?} {out:x?} {back:x?}");
        }
    }

    /// Checks that a translated packet has a session whose reply goes to its sender.
    fn check_reply(&mut self, frame: &[u8], meta: &Meta, port: u16, out: &[u8]) {
        let whole = !meta.flags.intersects(PacketFlags::FRAGMENT | PacketFlags::ROUTED);
        let ports = matches!(meta.kind.l4(), Kind::TCP | Kind::UDP);
        let moved = endpoints(frame, meta) != endpoints(out, meta);
        if !(whole && ports && moved) {
            return;
        }
        let mut reply = reversed(out, meta);
        if meta.kind.l4() == Kind::TCP {
            reply[usize::from(meta.l4_off) + 13] = TcpSegment::ACK;
        }
        self.received += 1;
        let sent = self.harness.process(port, VecPacket::new(&reply));
        if let [ProcessedPacket { packet, outcome: Outcome::Out(_), .. }] = &sent[..] {
            assert_eq!(
                endpoints(packet.head(), meta),
                endpoints(&reversed(frame, meta), meta),
                "{frame:x?} {out:x?}"
            );
        }
        self.take(&sent);
    }

    /// The peer sends the last packet back, with other flags.
    fn reply(&mut self, flags: u8) {
        let Some((port, frame)) = self.last.take() else { return };
        let mut meta = Meta::default();
        if parse(&frame, frame.len(), &mut meta).is_err() || meta.kind == Kind::default() {
            return;
        }
        let mut frame = reversed(&frame, &meta);
        if meta.kind.l4() == Kind::TCP {
            frame[usize::from(meta.l4_off) + 13] = flags;
        }
        self.packet(port, &frame);
    }

    /// The peer, or a router before it, sends an ICMP error about the last packet.
    fn send_icmp_error(&mut self, a: u8) {
        let Some((port, frame)) = self.last.take() else { return };
        let mut meta = Meta::default();
        if parse(&frame, frame.len(), &mut meta).is_err() {
            return;
        }
        let l3 = usize::from(meta.l3_off);
        let quoted = &frame[l3..frame.len().min(l3 + 48 + usize::from(a))];
        let transport = |kind| Icmp { code: a & 3, ..Icmp::new(kind) };
        let error = match meta.kind.l3() {
            Kind::IP4 => {
                let [from, to] =
                    [16, 12].map(|at| <[u8; 4]>::try_from(&quoted[at..at + 4]).expect("four bytes"));
                let from = if a & 4 == 0 { from } else { [198, 51, 100, a] };
                Frame::new(Ip4::new(from, to), transport([3, 11, 12, 4][usize::from(a >> 6)]))
            }
            Kind::IP6 => {
                let [from, to] =
                    [24, 8].map(|at| <[u8; 16]>::try_from(&quoted[at..at + 16]).expect("sixteen bytes"));
                Frame::new(Ip6::new(from, to), transport([1, 2, 3, 4][usize::from(a >> 6)]))
            }
            _ => return,
        };
        self.packet(port, &error.payload(quoted).build());
    }

    /// Checks that nothing is left after all timeouts.
    fn end(mut self) {
        for _ in 0..4 {
            self.wait(FOREVER / 4);
        }
        assert_eq!(self.received, self.finished, "packets wait forever");
        let rules = RuleSet::new(Policy::new(), NatConfig::default(), self.harness.rules().settings);
        self.harness.replace_rules(rules);
        for sessions in self.harness.workers() {
            assert_eq!((sessions.counters().sessions, sessions.nat().mappings()), (0, 0));
        }
    }
}
