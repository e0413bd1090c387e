//! Bytes that no packet has brought, as functions get them.

use std::any::Any;
use std::sync::Mutex;

use mmb_flow::HeldLimits;

use crate::Packet;
use crate::context::Emissions;
use crate::held::HeldPackets;

/// What becomes of a connection that a function does not let go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its ends read an end of file.
    Close,
    /// Its ends get a reset.
    Reset,
}

/// What follows bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// More bytes may follow: functions may hold some back.
    More,
    /// The receiver needs what there is: nothing more may be held back.
    Answer,
    /// The stream ends.
    End,
}

/// The bytes that a function gets.
pub(crate) struct RawBytes<'a, 'p> {
    /// A packet of the direction without payload.
    pub packet: &'a Packet<'p>,
    pub bytes: &'a [u8],
    /// How many of them were held back before.
    pub held: usize,
    pub follows: Follows,
}

/// What becomes of the bytes.
#[derive(Debug, Default)]
pub(crate) struct PassedBytes {
    /// What goes on.
    pub out: Vec<u8>,
    /// What waits.
    pub rest: Vec<u8>,
    /// The function reads no more of the connection.
    pub is_detached: bool,
}

/// What brokers have of an instance: the state of their worker.
pub(crate) struct BrokerRoom {
    pub local: Box<dyn Any + Send>,
    pub emissions: Emissions,
    pub held: HeldPackets,
}

impl BrokerRoom {
    pub fn new(local: Box<dyn Any + Send>) -> BrokerRoom {
        let limits = HeldLimits { session: 0, worker: 0 };
        BrokerRoom { local, emissions: Emissions::default(), held: HeldPackets::with_limits(limits) }
    }
}

/// What brokers have of an instance, made when the first of them needs it.
pub(crate) type BrokerPlace = Mutex<Option<BrokerRoom>>;
