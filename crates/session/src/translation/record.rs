//! The engine's record of a session that needs one: translated numbers, and refusals.
//!
//! Theory of operation. A session can replace numbers besides addresses and ports: sequence numbers, IP
//! identifiers, flow labels. They are stored in a [`Mangle`] in the session's [`SessionRecord`]. Few sessions
//! need one: records are in an array of their own, which takes memory where it is written. The packet that
//! opens the session determines all of it, with one exception: the first sequence number of the answering
//! side is chosen then, and its offset is known when that side sends its SYN. Sessions that are picked up in
//! the middle keep their numbers, which both ends know already.
//!
//! Functions in a chain see the numbers of the session's originator, in both directions: what they edit, and
//! what acknowledges it, must be of one numbering. So the numbers of forward packets are translated behind
//! the chain ([`SessionRecords::translate_numbers`]), and those of reverse packets in front of it. Addresses
//! and ports are translated in front of it, or by the chain. Frames that functions make are translated like
//! the packets that they go with.
//!
//! Edits of a connection by functions leave constants, which are added to the mangle when the session takes
//! the short way. The tracker and the flows keep what they know in the numbers of the sender of each
//! direction, as while the functions edited ([`SessionRecords::tracked`]).

use std::io;

use bytemuck::{Pod, Zeroable};
use mmb_flow::{
    Arena, Direction, EditOffsets, Flow, FlowFlags, FlowRef, Key, Mangle, SessionFlags, SessionId, Table,
    Xlat4, translate, translate_ip4, translate_numbers,
};
use mmb_nf::SettledEdits;
use mmb_packet::{DropReason, Meta};

use crate::lifetime::DIRECTIONS;

/// What the engine stores of a session that needs it. The session's flags tell which fields are valid.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
struct SessionRecord {
    /// All that is added to numbers, edits included.
    mangle: Mangle,
    /// What edits have added to the mangle.
    edits: EditOffsets,
    /// What the answering side's first sequence number becomes.
    new_isn: u32,
    /// 1: that number has not arrived yet.
    awaits_isn: u8,
    /// Why packets are dropped, as the number of a [`DropReason`].
    refusal: u8,
    /// The generation of rules under which they are.
    refusal_epoch: u16,
}

/// The numbers of a session, for the process that goes on with it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct SavedNumbers {
    mangle: Mangle,
    edits: EditOffsets,
    new_isn: u32,
    awaits_isn: u32,
}

impl SavedNumbers {
    /// Whether edits have changed the numbers.
    pub fn has_edits(&self) -> bool {
        !self.edits.is_zero()
    }
}

/// Sets how packets of both flows are translated. `only_endpoints`: nothing but addresses and ports changes.
pub(crate) fn set_translation(
    [forward, back]: &mut [Flow; 2],
    key: &Key,
    reverse: &Key,
    only_endpoints: bool,
) {
    match Xlat4::pair(key, reverse).filter(|_| only_endpoints) {
        Some([out, home]) => {
            forward.set_xlat4(&out);
            back.set_xlat4(&home);
        }
        None => {
            forward.flags |= FlowFlags::XLAT_SLOW;
            back.flags |= FlowFlags::XLAT_SLOW;
        }
    }
}

/// A mangle, and what the answering side's first sequence number becomes.
pub(crate) type NumberTranslation = (Mangle, Option<u32>);

/// The records of all sessions.
#[derive(Debug)]
pub(crate) struct SessionRecords {
    records: Arena<SessionRecord>,
    /// Sessions with translated numbers.
    numbered: u32,
}

impl SessionRecords {
    /// Reserves records for so many sessions.
    ///
    /// # Errors
    /// The error of the system if there is not enough address space.
    pub fn new(sessions: u32) -> io::Result<SessionRecords> {
        Ok(SessionRecords { records: Arena::new(sessions as usize)?, numbered: 0 })
    }

    /// Returns the record of a session.
    fn record(&self, id: SessionId) -> SessionRecord {
        self.records.get().get(id.0 as usize).copied().unwrap_or_default()
    }

    /// Changes the record of a session.
    fn update(&mut self, id: SessionId, change: impl FnOnce(&mut SessionRecord)) {
        if let Some(record) = self.records.get_mut().get_mut(id.0 as usize) {
            change(record);
        }
    }

    /// Returns the translated numbers of a session, if it has any.
    pub fn mangle(&self, table: &Table, id: SessionId) -> Option<Mangle> {
        let has = table.session(id).flags.contains(SessionFlags::MANGLE);
        has.then(|| self.record(id).mangle)
    }

    /// Whether some session has translated numbers.
    #[inline(always)]
    pub fn translates_numbers(&self) -> bool {
        self.numbered != 0
    }

    /// Sets the translated numbers of a session.
    pub fn set_mangle(&mut self, table: &mut Table, id: SessionId, (mangle, new_isn): NumberTranslation) {
        let flags = &mut table.session_mut(id).flags;
        self.numbered += u32::from(!flags.contains(SessionFlags::MANGLE));
        *flags |= SessionFlags::MANGLE;
        self.records.request_next(id.0 as usize);
        self.update(id, |record| {
            (record.mangle, record.new_isn) = (mangle, new_isn.unwrap_or(0));
            record.edits = EditOffsets::default();
            record.awaits_isn = u8::from(new_isn.is_some());
        });
    }

    /// Returns the numbers of a session. They are zeros without translated ones.
    pub fn saved_numbers(&self, table: &Table, id: SessionId) -> SavedNumbers {
        if !table.session(id).flags.contains(SessionFlags::MANGLE) {
            return SavedNumbers::default();
        }
        let SessionRecord { mangle, edits, new_isn, awaits_isn, .. } = self.record(id);
        SavedNumbers { mangle, edits, new_isn, awaits_isn: awaits_isn.into() }
    }

    /// Sets the numbers of a session.
    pub fn restore_numbers(&mut self, table: &mut Table, id: SessionId, numbers: &SavedNumbers) {
        let &SavedNumbers { mangle, edits, new_isn, awaits_isn } = numbers;
        self.set_mangle(table, id, (mangle, (awaits_isn != 0).then_some(new_isn)));
        self.update(id, |record| record.edits = edits);
    }

    /// Returns what edits have added to the numbers of a session.
    pub fn edits(&self, table: &Table, id: SessionId) -> EditOffsets {
        let has = table.session(id).flags.contains(SessionFlags::MANGLE);
        if has { self.record(id).edits } else { EditOffsets::default() }
    }

    /// Whether edits alone have changed the numbers of a session.
    fn has_only_edits(&self, id: SessionId) -> bool {
        let SessionRecord { mut mangle, edits, awaits_isn, .. } = self.record(id);
        mangle.remove_edits(edits);
        awaits_isn == 0 && mangle == Mangle::default()
    }

    /// Whether nothing but addresses, ports and TCP numbers of a session is translated, by constants.
    pub fn has_only_numbers(&self, id: SessionId) -> bool {
        let SessionRecord { mangle, awaits_isn, .. } = self.record(id);
        let Mangle { sequence, acknowledgment, .. } = mangle;
        awaits_isn == 0 && mangle == Mangle { sequence, acknowledgment, ..Mangle::default() }
    }

    /// Returns what is added to sequence numbers and to acknowledgment numbers of a flow.
    pub fn added_numbers(&self, table: &Table, flow: FlowRef) -> (u32, u32) {
        let Mangle { sequence, acknowledgment, .. } = self.mangle(table, flow.session()).unwrap_or_default();
        match flow.direction() {
            Direction::Forward => (sequence, acknowledgment),
            Direction::Reverse => (acknowledgment.wrapping_neg(), sequence.wrapping_neg()),
        }
    }

    /// Adds what edits have left to the numbers of a session.
    pub fn add_edits(
        &mut self,
        table: &mut Table,
        id: SessionId,
        SettledEdits { offsets, acknowledged }: SettledEdits,
    ) {
        for (direction, acknowledged) in DIRECTIONS.into_iter().zip(acknowledged) {
            if let Some(number) = acknowledged {
                table.flow_mut(FlowRef::new(id, direction.opposite())).ack = number;
            }
        }
        if offsets.is_zero() {
            return;
        }
        if !table.session(id).flags.contains(SessionFlags::MANGLE) {
            self.set_mangle(table, id, (Mangle::default(), None));
        }
        self.update(id, |record| {
            record.mangle.add_edits(offsets);
            record.edits = record.edits.and(offsets);
        });
        for direction in DIRECTIONS {
            let flow = table.flow_mut(FlowRef::new(id, direction));
            flow.flags = (flow.flags - FlowFlags::XLAT4) | FlowFlags::XLAT_SLOW;
        }
    }

    /// Removes what edits have added to the numbers of a session, and returns it.
    pub fn take_edits(&mut self, table: &mut Table, id: SessionId) -> Option<EditOffsets> {
        let edits = self.edits(table, id);
        if edits.is_zero() {
            return None;
        }
        let is_plain = self.has_only_edits(id);
        self.update(id, |record| {
            record.mangle.remove_edits(edits);
            record.edits = EditOffsets::default();
        });
        if is_plain {
            let [key, reverse] = DIRECTIONS.map(|direction| table.key(FlowRef::new(id, direction)));
            let (flows, session) = table.parts_mut(id);
            session.flags -= SessionFlags::MANGLE;
            self.numbered -= 1;
            flows.iter_mut().for_each(|flow| flow.flags -= FlowFlags::XLAT_SLOW);
            if reverse != key.reversed() {
                set_translation(flows, &key, &reverse, true);
            }
        }
        Some(edits)
    }

    /// A session with these flags ends.
    pub fn release(&mut self, flags: SessionFlags) {
        self.numbered -= u32::from(flags.contains(SessionFlags::MANGLE));
    }

    /// Returns an acknowledgement number of a flow as the tracker counts: as the sender of the other
    /// direction does, before rules and functions change it.
    pub fn tracked_ack(&self, table: &Table, flow: FlowRef, ack: u32) -> u32 {
        if !table.session(flow.session()).flags.contains(SessionFlags::MANGLE) {
            return ack;
        }
        let SessionRecord { mangle, edits, .. } = self.record(flow.session());
        match flow.direction() {
            Direction::Forward => edits.acknowledgment(Direction::Forward, ack),
            Direction::Reverse => ack.wrapping_sub(mangle.sequence),
        }
    }

    /// Returns a sequence number of a flow as the tracker counts: as the originator does, before functions
    /// change it.
    pub fn tracked_sequence(&self, table: &Table, flow: FlowRef, sequence: u32) -> u32 {
        if flow.direction() == Direction::Forward
            || !table.session(flow.session()).flags.contains(SessionFlags::MANGLE)
        {
            return sequence;
        }
        let SessionRecord { mut mangle, edits, .. } = self.record(flow.session());
        mangle.remove_edits(edits);
        sequence.wrapping_sub(mangle.acknowledgment)
    }

    /// Whether the answering side's first sequence number is still to be learned.
    pub fn awaits_isn(&self, table: &Table, id: SessionId) -> bool {
        table.session(id).flags.contains(SessionFlags::MANGLE) && self.record(id).awaits_isn != 0
    }

    /// Learns the answering side's first sequence number.
    pub fn set_isn(&mut self, id: SessionId, isn: u32) {
        self.update(id, |record| {
            record.mangle.acknowledgment = isn.wrapping_sub(record.new_isn);
            record.edits = EditOffsets::default();
            record.awaits_isn = 0;
        });
    }

    /// Returns why all packets of the session are dropped under this generation of rules, if they are.
    pub fn refusal(&self, table: &Table, id: SessionId, epoch: u16) -> Option<DropReason> {
        if !table.session(id).flags.contains(SessionFlags::REFUSED) {
            return None;
        }
        let SessionRecord { refusal, refusal_epoch, .. } = self.record(id);
        DropReason::from_number(refusal).filter(|_| refusal_epoch == epoch)
    }

    /// Drops all packets of the session from now on, until the generation of rules changes. Its flows are not
    /// settled any more, so that every path checks for the refusal.
    pub fn refuse(&mut self, table: &mut Table, id: SessionId, reason: DropReason, epoch: u16) {
        table.session_mut(id).flags |= SessionFlags::REFUSED;
        self.update(id, |record| (record.refusal, record.refusal_epoch) = (reason as u8, epoch));
        for direction in DIRECTIONS {
            table.flow_mut(FlowRef::new(id, direction)).flags &= !FlowFlags::SETTLED;
        }
    }

    /// Translates a packet of a flow, whatever is replaced. If the packet is to pass a chain, what is left
    /// for later is left out: see the theory of operation.
    ///
    /// # Errors
    /// As [`mmb_flow::translate`].
    #[inline(always)]
    pub fn translate(
        &self,
        table: &Table,
        flow_ref: FlowRef,
        head: &mut [u8],
        meta: &Meta,
    ) -> Result<(), DropReason> {
        let flow = table.flow(flow_ref);
        if !flow.flags.contains(FlowFlags::CHAINED) {
            let mangle = || self.mangle(table, flow_ref.session());
            return translate_packet(table, flow_ref, (head, meta), mangle);
        }
        if !flow.flags.contains(FlowFlags::CHAIN_TRANSLATES) {
            translate_packet(table, flow_ref, (head, meta), || None)?;
        }
        match flow_ref.direction() {
            Direction::Forward => Ok(()),
            Direction::Reverse => self.translate_numbers(table, flow_ref, head, meta),
        }
    }

    /// Translates the addresses and ports of a packet in a chain, and nothing else.
    ///
    /// # Errors
    /// As [`mmb_flow::translate`].
    #[inline]
    pub fn translate_addresses(
        &self,
        table: &Table,
        flow: FlowRef,
        head: &mut [u8],
        meta: &Meta,
    ) -> Result<(), DropReason> {
        translate_packet(table, flow, (head, meta), || None)
    }

    /// Translates the numbers of a packet whose addresses and ports are those of its receiver, if it has any
    /// to translate.
    ///
    /// # Errors
    /// As [`mmb_flow::translate_numbers`].
    #[inline]
    pub fn translate_numbers(
        &self,
        table: &Table,
        flow: FlowRef,
        head: &mut [u8],
        meta: &Meta,
    ) -> Result<(), DropReason> {
        if !table.flow(flow).flags.contains(FlowFlags::XLAT_SLOW) {
            return Ok(());
        }
        match self.mangle(table, flow.session()) {
            Some(mangle) => translate_numbers(head, meta, &mangle, flow.direction()),
            None => Ok(()),
        }
    }
}

/// Translates a packet of a flow. `mangle`: what is replaced besides addresses and ports.
#[inline(always)]
fn translate_packet(
    table: &Table,
    flow_ref: FlowRef,
    (head, meta): (&mut [u8], &Meta),
    mangle: impl FnOnce() -> Option<Mangle>,
) -> Result<(), DropReason> {
    let flow = table.flow(flow_ref);
    if flow.flags.contains(FlowFlags::XLAT4) {
        translate_ip4(&flow.xlat4(), head, meta);
        return Ok(());
    }
    if !flow.flags.contains(FlowFlags::XLAT_SLOW) {
        return Ok(());
    }
    let to = table.key(flow_ref.opposite()).reversed();
    translate(head, meta, &flow.key(), &to, mangle().as_ref(), flow_ref.direction())
}
