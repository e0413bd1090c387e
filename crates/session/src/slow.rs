//! The long way: packets that open sessions, change them, or belong to none.
//!
//! Theory of operation. Such a packet has been matched against all rules. It is looked up once more, since packets
//! before it in the same vector may have opened or ended sessions. What is found is brought up to date: rules that are
//! gone leave the session (and end it, if it was translated for one of them or has none left), rules that match now
//! join it, and the decision of the direction is made anew. Then rules judge, then the tracker takes note, then the
//! packet is translated. A packet of no session opens one if NAT or a stateful rule says so ([`crate::open`]), or goes
//! its way as rules without state say.
//!
//! With several workers, a packet may be handed to the one that its session lives with, or is to be opened by. It does
//! not go in circles. The worker that packets with its key come to first may hand it on. One that it was handed to keeps
//! it, unless it finds that the packet has gone astray (since rules have changed): then it gives it back, once, to have
//! the matter decided anew; or that it has no port left for it: then it gives it back to be translated where it came
//! from. (Fragments come first to the worker of their addresses, which hands them to the one that their ports name.)

use mmb_flow::{
    Direction, FlowRef, HashedKey, Key, KeyError, MappingId, SessionId, SessionState, TrackInput,
    TrackVerdict, flow_flags, parse_key,
};
use mmb_packet::{DropReason, Meta, PacketBuf, flags};
use mmb_policy::{Hit, RuleScope};

use crate::attached::{self, Attached};
use crate::engine::{End, Sessions, session_flags};
use crate::hot::edit_from;
use crate::{Environment, Next};

/// A packet on the long way, with all that surrounds it.
pub(crate) struct Call<'a, H, P> {
    pub now: u32,
    pub host: &'a H,
    pub packet: &'a mut P,
    pub meta: &'a mut Meta,
    pub in_port: u16,
    /// All rules that match.
    pub hits: &'a [Hit],
    pub edits: &'a mut Vec<u32>,
    /// Where its edits begin.
    pub first_edit: usize,
    /// What it was looked up by.
    pub sought: HashedKey,
}

impl<H: Environment, P: PacketBuf> Call<'_, H, P> {
    pub fn bytes(&self) -> u32 {
        u32::try_from(self.packet.len()).unwrap_or(u32::MAX)
    }

    /// Drops the packet.
    pub fn drop(&mut self, reason: DropReason) -> Next {
        self.edits.truncate(self.first_edit);
        self.meta.drop_reason = reason as u8;
        Next::Drop
    }

    /// Lets it go on to the other end of the wire, with the edits that were found.
    pub fn pass(&mut self) -> Next {
        self.meta.out_port = self.host.out_port(self.in_port);
        edit_from(self.first_edit, self.meta, self.edits)
    }

    /// Whether it comes from outside as far as NAT is concerned, though an inside host has sent it.
    pub fn is_looped(&self) -> bool {
        self.meta.flags & flags::LOOPED != 0
    }

    pub fn is_handed(&self) -> bool {
        self.meta.flags & flags::HANDED != 0
    }

    /// Whether the worker that it was given to has given it back.
    pub fn came_back(&self) -> bool {
        self.meta.flags & (flags::REFUSED | flags::ASTRAY) != 0
    }

    /// The stateful rules that match it.
    pub fn stateful(&self) -> impl Iterator<Item = u32> + '_ {
        let policy = self.host.policy();
        self.hits.iter().map(|hit| hit.slot).filter(move |&slot| policy.rule_info(slot).stateful)
    }
}

impl Sessions {
    /// Decides about a packet that [`Sessions::lookup`] or [`Sessions::process_per_packet`] called [`Next::SlowPath`], and does all
    /// there is to do. `hits` are all rules that match it; `meta` is what the parse found, and is written back by the
    /// caller. Never [`Next::PerPacketRules`] or [`Next::SlowPath`].
    #[expect(clippy::too_many_arguments, reason = "what surrounds a packet is all different")]
    pub fn process_slow_path<H: Environment, P: PacketBuf>(
        &mut self,
        now: u32,
        host: &H,
        packet: &mut P,
        meta: &mut Meta,
        in_port: u16,
        hits: &[Hit],
        edits: &mut Vec<u32>,
    ) -> Next {
        self.clock = now;
        // Rules have seen a looping packet when it was sent.
        let hits = if meta.flags & flags::LOOPED != 0 { &[] } else { hits };
        let first_edit = edits.len();
        let mut call =
            Call { now, host, packet, meta, in_port, hits, edits, first_edit, sought: HashedKey::default() };
        self.dispatch(&mut call)
    }

    pub(crate) fn dispatch<H: Environment, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>) -> Next {
        match parse_key(call.packet.head(), call.meta) {
            Ok(key) => self.keyed(call, &key),
            Err(KeyError::FirstFragment(key)) => self.first_fragment(call, &key),
            Err(KeyError::LaterFragment) => self.later_fragment(call),
            Err(KeyError::IcmpError) => self.icmp_error(call),
            Err(KeyError::NotIp) => self.stateless(call),
        }
    }

    /// A packet with a key of its own.
    pub(crate) fn keyed<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
    ) -> Next {
        let (found, sought) = self.table.find_with_hash(key);
        call.sought = sought;
        call.meta.session = found.0;
        if found.is_some() {
            self.settle_loans(call.now, found.session(), call.host);
            if let Some(worker) = self.table.redirect_worker(found) {
                if !call.came_back() {
                    self.table.flow_mut(found).last_seen = call.now;
                    return self.hand_off(call.meta, worker);
                }
                self.end(found.session(), End::Replaced, call.host);
            } else if self.lives_until(found.session(), call.now).is_none() {
                self.end(found.session(), End::Expired, call.host);
            } else if let Some(next) = self.existing(call, found) {
                return next;
            }
            call.meta.session = FlowRef::NONE.0;
        }
        self.unknown(call, key)
    }

    /// A packet of a session. None: the session has ended, and the packet belongs to none.
    fn existing<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        found: FlowRef,
    ) -> Option<Next> {
        self.revoke(call.now, found.session(), call.host);
        if !self.bring_up_to_date(call, found) {
            self.end(found.session(), End::RuleGone, call.host);
            return None;
        }
        self.learn(call, found);
        let mut track = self.table.session(found.session()).track;
        let traffic = self.traffic(call, found);
        let mut acks = self.acks(found.session());
        let seen = track.update(found.direction(), &traffic, &mut acks, &self.settings);
        match seen.verdict {
            TrackVerdict::New => {
                self.end(found.session(), End::Replaced, call.host);
                return None;
            }
            TrackVerdict::Drop(reason) => return Some(call.drop(reason)),
            TrackVerdict::Pass => {}
        }
        let number = self.table.flow(found).decision();
        if !call.is_looped() && self.judge(call.host, number, call.hits, call.bytes(), call.edits) {
            return Some(call.drop(DropReason::Rule));
        }
        if let Some(reason) = self.refused(found.session()) {
            return Some(call.drop(reason));
        }
        self.take_note(call, found, &seen);
        self.table.session_mut(found.session()).track = track;
        self.set_acks(found.session(), acks);
        Some(self.translated(call, found))
    }

    /// What the tracker sees of a packet: numbers as the side that opened the session sees them.
    fn traffic<H: Environment, P: PacketBuf>(&self, call: &Call<'_, H, P>, found: FlowRef) -> TrackInput {
        let mut traffic = TrackInput::of(call.packet.head(), call.meta);
        if found.direction() == Direction::Reverse
            && let TrackInput::Tcp(segment) = &mut traffic
            && let Some(mangle) = self.mangle(found.session())
        {
            segment.ack = segment.ack.wrapping_sub(mangle.sequence);
            segment.seq = segment.seq.wrapping_sub(mangle.acknowledgment);
        }
        traffic
    }

    pub(crate) fn acks(&self, id: SessionId) -> [u32; 2] {
        [Direction::Forward, Direction::Reverse].map(|way| self.table.flow(FlowRef::new(id, way)).ack)
    }

    pub(crate) fn set_acks(&mut self, id: SessionId, [there, back]: [u32; 2]) {
        self.table.flow_mut(FlowRef::new(id, Direction::Forward)).ack = there;
        self.table.flow_mut(FlowRef::new(id, Direction::Reverse)).ack = back;
    }

    /// Sees to it that the session has the rules that it should have, and the half a decision that is up to date. False:
    /// nothing keeps the session any more.
    fn bring_up_to_date<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        found: FlowRef,
    ) -> bool {
        let policy = call.host.policy();
        let &SessionState { rule_list: rules, mapping, flags, .. } = self.table.session(found.session());
        let (stamp, number) = (self.decisions.stamp(call.in_port), self.table.flow(found).decision());
        let joined = call.stateful().any(|slot| !self.rules.has(rules, slot));
        if self.decisions.is_current(number, stamp) && !joined {
            return true;
        }
        let mut list = std::mem::take(&mut self.attached);
        list.clear();
        list.extend(self.rules.get(rules));
        let translator_gone = list.iter().any(|rule| rule.translates && !rule.is_alive(policy));
        list.retain(|rule| rule.is_alive(policy));
        let kept = !list.is_empty() || flags & session_flags::RULELESS != 0;
        let mapped = mapping == u32::MAX || self.nat.is_live(MappingId(mapping));
        for rule in call.stateful().filter_map(|slot| Attached::of(policy, slot, false)) {
            attached::insert(&mut list, rule);
        }
        let lives = kept && mapped && !translator_gone && self.keep_chain(call, found, &list);
        if lives {
            self.attach(call, found, &list, joined);
            let number = self.decide(call, &list, stamp);
            self.settle(found, call.host);
            let half = self.table.flow_mut(found);
            let old = half.decision();
            half.set_decision(number);
            self.decisions.give_back(old, call.host);
        }
        self.attached = list;
        lives
    }

    /// Gives the session a list of rules. If some are new, the other direction will want another decision.
    fn attach<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        found: FlowRef,
        list: &[Attached],
        joined: bool,
    ) {
        let number = self.rules.take(list);
        let old = std::mem::replace(&mut self.table.session_mut(found.session()).rule_list, number);
        self.rules.give_back(old);
        if joined {
            self.settle(found.opposite(), call.host);
            let other = self.table.flow_mut(found.opposite());
            let old = other.decision();
            other.set_decision(0);
            self.decisions.give_back(old, call.host);
        }
    }

    /// The decision of a direction: of the session's rules, and of those that match all of the direction's packets.
    pub(crate) fn decide<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        list: &[Attached],
        stamp: u32,
    ) -> u32 {
        let policy = call.host.policy();
        self.slots.clear();
        self.slots.extend(list.iter().map(|rule| rule.slot));
        let constant = call
            .hits
            .iter()
            .map(|hit| hit.slot)
            .filter(|&slot| policy.rule_info(slot).scope == RuleScope::Session);
        self.slots.extend(constant);
        self.slots.sort_unstable();
        self.slots.dedup();
        let slots = std::mem::take(&mut self.slots);
        let number = self.decide_by(call, &slots, stamp);
        self.slots = slots;
        number
    }

    /// The decision of a direction, by the rules in these slots.
    pub(crate) fn decide_by<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        slots: &[u32],
        stamp: u32,
    ) -> u32 {
        // A looping packet has no rules of its own: what is decided for it must not last.
        let stamp = if call.is_looped() { 0 } else { stamp };
        let number = self.decisions.take(call.host.policy(), stamp, slots);
        self.counters.decided += 1;
        number
    }

    /// Writes down what the tracker and the wheel need to know about a packet that passes.
    pub(crate) fn take_note<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        found: FlowRef,
        seen: &mmb_flow::TrackOutcome,
    ) {
        let id = found.session();
        self.settle(found, call.host);
        let half = self.table.flow_mut(found);
        half.count(1, call.bytes());
        half.last_seen = call.now;
        half.flags |= flow_flags::SEEN;
        self.table.session_mut(id).in_port[found.direction() as usize] = call.in_port;
        self.heed(call.now, id, seen);
    }

    /// Does what follows from a packet that the tracker saw at a time.
    pub(crate) fn heed(&mut self, now: u32, id: SessionId, seen: &mmb_flow::TrackOutcome) {
        let flags = self.table.session(id).flags;
        let loops = [session_flags::LOOP_FORWARD, session_flags::LOOP_REVERSE].map(|flag| flags & flag != 0);
        for (way, direction) in [Direction::Forward, Direction::Reverse].into_iter().enumerate() {
            let half = self.table.flow_mut(FlowRef::new(id, direction));
            match seen.settled[way] && !loops[way] {
                true => half.flags |= flow_flags::SETTLED,
                false => half.flags &= !flow_flags::SETTLED,
            }
        }
        if !seen.embryonic {
            self.table.remove_embryonic(id);
        }
        let deadline = now.wrapping_add(seen.timeout);
        // The wheel finds out about longer lives itself, when it gets there.
        if (deadline.wrapping_sub(self.table.deadline(id)) as i32) < 0 {
            self.table.arm_timer(id, deadline);
        }
    }

    /// A packet that belongs to no session and opens none.
    pub(crate) fn stateless<H: Environment, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>) -> Next {
        if self.judge(call.host, 0, call.hits, call.bytes(), call.edits) {
            return call.drop(DropReason::Rule);
        }
        call.pass()
    }
}
