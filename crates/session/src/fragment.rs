//! Fragments: the first one of a datagram has a key, the later ones follow it.

use mmb_flow::{DatagramKey, FlowRef, FragmentAction, Key};
use mmb_packet::{DropReason, PacketBuf, StageWord};

use crate::engine::Sessions;
use crate::slow::Call;
use crate::{Environment, Next};

/// Where the first fragment of a datagram went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To a session: the one that had this uid.
    Session(FlowRef, u32),
    /// To another worker.
    Worker(u16),
    /// Its way, without a session.
    Nowhere,
    /// It was dropped.
    Dropped(DropReason),
}

impl Sessions {
    /// The first fragment of a datagram.
    pub(crate) fn first_fragment<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
    ) -> Next {
        let Some(datagram) = DatagramKey::of(call.packet.head(), call.meta) else {
            return self.keyed(call, key);
        };
        let home = self.home(key);
        let elsewhere = self.config.workers > 1
            && home != self.config.worker
            && !call.is_handed()
            && !self.table.find(key).is_some();
        let next = if elsewhere { self.hand_off(call.meta, home) } else { self.keyed(call, key) };
        let found = self.table.find(key);
        let target = match next {
            Next::HandOff if !found.is_some() => Target::Worker(call.meta.stage.worker()),
            _ if found.is_some() => match self.table.redirect_worker(found) {
                Some(worker) => Target::Worker(worker),
                None => Target::Session(found, self.table.uid(found.session())),
            },
            Next::Drop | Next::Reply => {
                Target::Dropped(DropReason::from_number(call.meta.drop_reason).unwrap_or(DropReason::Rule))
            }
            _ => Target::Nowhere,
        };
        self.fragments.record_first(&datagram, target, call.now);
        next
    }

    /// Another fragment.
    pub(crate) fn later_fragment<H: Environment, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>) -> Next {
        let Some(datagram) = DatagramKey::of(call.packet.head(), call.meta) else {
            return self.stateless(call);
        };
        match self.fragments.resolve_later(&datagram, call.now, self.settings.timeouts.fragment) {
            FragmentAction::Follow(Target::Session(found, uid)) => {
                if !self.is_still(found, uid) {
                    return call.drop(DropReason::FragmentLost);
                }
                self.follow(call, found)
            }
            FragmentAction::Follow(Target::Worker(worker)) => self.hand_off(call.meta, worker),
            FragmentAction::Follow(Target::Nowhere) => self.stateless(call),
            FragmentAction::Follow(Target::Dropped(reason)) => call.drop(reason),
            FragmentAction::Wait(ticket) => {
                self.counters.held += 1;
                call.meta.stage = StageWord::from_ticket(ticket.0);
                Next::Hold
            }
            FragmentAction::Refused => call.drop(DropReason::FragmentLost),
        }
    }

    /// Whether a session is still there, and the same.
    pub(crate) fn is_still(&self, found: FlowRef, uid: u32) -> bool {
        self.table.is_live(found.session()) && self.table.uid(found.session()) == uid
    }

    fn follow<H: Environment, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>, found: FlowRef) -> Next {
        call.meta.session = found.0;
        if !call.is_looped() && self.judge_related(call, found) {
            return call.drop(DropReason::Rule);
        }
        if let Some(reason) = self.refused(found.session()) {
            return call.drop(reason);
        }
        self.settle(found, call.host);
        let half = self.table.flow_mut(found);
        half.count(1, u32::try_from(call.packet.len()).unwrap_or(u32::MAX));
        half.last_seen = call.now;
        self.translated(call, found)
    }
}
