//! Sessions that outlive the process: what is saved of them, and how the next process gets them.
//!
//! Theory of operation. When the daemon stops, each worker copies its sessions ([`capture`]). A copy has what
//! a session is: the keys of both directions, the state of the tracker, what is translated, counters, and
//! times as durations. It refers to ports, pools and rules by their numbers. The names of these numbers are
//! stored beside the copies ([`file`]), so that the next process can have other numbers.
//!
//! The next process inserts each session before its first packet ([`restore`]), at the worker that owns it
//! now ([`Placement`]). Rules whose text is the same go on. A session that has none of its rules left is
//! judged by the packet that opened it, as behind a change of rules. The flows have no decision: the first
//! packet of each direction takes the slow path, where rules that the session lacks join it, and where it
//! joins its chain as a session that is picked up in the middle.
//!
//! A daemon that is taken over copies its sessions twice: all of them while packets go on, and at the end
//! those that have changed since. A session has changed if a packet came ([`CopyMarks`]), or has a chain. The
//! other process forgets what it got of those, and of sessions that have ended, before it restores them.
//!
//! Left out are sessions that have timed out meanwhile, that no rule allows, or whose mapping the pools do
//! not cover. Left out when they are saved are sessions whose functions hold what cannot be copied: a
//! translation, edits that are not acknowledged yet, or a refusal.

mod capture;
pub mod file;
mod restore;

use bytemuck::{Pod, Zeroable};
use mmb_flow::{Key, NatConfig, RedirectState, SessionFlags, SessionId, TrackState};

use crate::SessionConfig;
use crate::translation::record::SavedNumbers;

/// The flags of a session that outlive the process.
const KEPT_FLAGS: SessionFlags = SessionFlags::MANGLE
    .union(SessionFlags::LOOP_FORWARD)
    .union(SessionFlags::LOOP_REVERSE)
    .union(SessionFlags::INBOUND)
    .union(SessionFlags::RULELESS);

/// [`SavedSession::pool`] of a session without a pool.
pub const NO_POOL: u16 = u16::MAX;
/// [`SavedSession::in_port`] of a direction without packets.
pub const NO_PORT: u16 = u16::MAX;

/// A session that outlives the process. Numbers are in native byte order, unless they are those of a [`Key`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SavedSession {
    /// Packets and bytes of both directions.
    counts: [[u64; 2]; 2],
    /// The keys of both directions.
    keys: [Key; 2],
    /// Numbers that are translated; valid with [`SessionFlags::MANGLE`].
    numbers: SavedNumbers,
    /// Milliseconds since the last packet of each direction.
    idle: [u32; 2],
    /// Milliseconds since the session was opened.
    age: u32,
    /// The last acknowledgement numbers, as the tracker counts.
    acks: [u32; 2],
    /// Index of the session's list of rules.
    pub rule_list: u32,
    track: TrackState,
    /// Input ports of both directions; [`NO_PORT`]: none yet.
    pub in_port: [u16; 2],
    /// Number of the NAT pool; [`NO_POOL`]: the session has no mapping, or that of a forward.
    pub pool: u16,
    /// The port by which packets of the internal host come in; [`NO_PORT`]: the host's location is unknown.
    pub host_port: u16,
    /// Ethernet address of the internal host.
    host_mac: [u8; 6],
    flags: SessionFlags,
    /// One bit for each direction of which packets have been seen.
    seen: u8,
    /// 1 if the session has a NAT mapping.
    is_mapped: u8,
    zero: [u8; 5],
}

const _: () = assert!(size_of::<SavedSession>() == 216);

impl SavedSession {
    /// Whether the session translates its source by a pool, or was let in by NAT.
    pub fn is_mapped(&self) -> bool {
        self.is_mapped != 0
    }

    /// Adds the time that has passed since the session was saved, in milliseconds.
    pub fn age_by(&mut self, milliseconds: u32) {
        self.idle = self.idle.map(|idle| idle.saturating_add(milliseconds));
        self.age = self.age.saturating_add(milliseconds);
    }

    /// Whether the keys are such that a packet could have them.
    fn is_valid(&self) -> bool {
        let [forward, reverse] = &self.keys;
        self.keys.iter().all(Key::is_canonical)
            && (forward.kind, forward.proto) == (reverse.kind, reverse.proto)
    }

    /// Whether functions have edited the connection, so that its ends count differently.
    fn has_edits(&self) -> bool {
        self.flags.contains(SessionFlags::MANGLE) && self.numbers.has_edits()
    }

    /// The keys of both directions.
    pub fn keys(&self) -> [Key; 2] {
        self.keys
    }

    /// The key of forward packets after translation.
    fn translated(&self) -> Key {
        self.keys[1].reversed()
    }
}

/// A stateful rule of a saved session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SavedRule {
    /// The slot of the rule.
    pub slot: u32,
    /// The rule translates the session, which ends with the rule.
    pub translates: bool,
}

/// Sessions that outlive the process, with their lists of rules.
#[derive(Clone, Debug, Default)]
pub struct SavedSessions {
    /// The sessions.
    pub sessions: Vec<SavedSession>,
    /// Lists of rules, in ascending order of slots.
    pub lists: Vec<Vec<SavedRule>>,
    /// Sessions that could not be saved.
    pub left_out: u64,
}

/// A session that was copied, for [`Sessions::find_changed`](crate::Sessions::find_changed).
#[derive(Clone, Copy, Debug)]
pub(super) struct CopiedSession {
    id: SessionId,
    uid: u32,
}

/// Sessions that were copied while packets went on, with what tells later whether they have changed.
#[derive(Clone, Debug)]
pub struct CopyMarks {
    /// The worker's time.
    at: u32,
    sessions: Vec<CopiedSession>,
}

impl CopyMarks {
    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

/// Sessions of a worker.
#[derive(Clone, Debug, Default)]
pub struct SessionSet(Vec<u64>);

impl SessionSet {
    fn insert(&mut self, id: SessionId) {
        let word = id.0 as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (id.0 % 64);
    }

    fn contains(&self, id: SessionId) -> bool {
        self.0.get(id.0 as usize / 64).is_some_and(|word| word >> (id.0 % 64) & 1 != 0)
    }
}

/// The rules of a list that the process has which gets the sessions.
#[derive(Clone, Debug, Default)]
pub struct KeptRules {
    /// The rules that exist, by their slots in this process.
    pub rules: Vec<SavedRule>,
    /// A rule that translates sessions does not exist: they end.
    pub lost_translation: bool,
}

/// Why a saved session is not restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRestored {
    /// Its time is over.
    #[error("timed out")]
    Expired,
    /// No rule allows it.
    #[error("not allowed by the rules")]
    NotAllowed,
    /// NAT does not give it its mapping.
    #[error("without their NAT mapping")]
    NoMapping,
    /// The table is full, or another session has one of its keys.
    #[error("without room")]
    NoRoom,
}

impl NotRestored {
    /// All reasons: `ALL[i] as usize == i`.
    pub const ALL: [NotRestored; 4] =
        [NotRestored::Expired, NotRestored::NotAllowed, NotRestored::NoMapping, NotRestored::NoRoom];
}

/// The workers of a saved session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The worker that owns it.
    pub owner: u16,
    /// By direction: the key of packets that another worker receives first, and that worker. It needs a
    /// redirect to the owner.
    pub redirects: [Option<(Key, u16)>; 2],
    /// The state of these redirects.
    pub state: RedirectState,
}

impl Placement {
    /// The workers of a session, of `workers`.
    pub fn of(session: &SavedSession, nat: &NatConfig, workers: u16) -> Placement {
        let config = SessionConfig { sessions: 0, worker: 0, workers, seed: 0, scratchpad: 0 };
        let [forward, reverse] = session.keys;
        let owner = match session.is_mapped() {
            true => {
                let is_inbound = session.flags.contains(SessionFlags::INBOUND);
                let host = if is_inbound { session.translated().destination } else { forward.source };
                let external = if is_inbound { forward.destination } else { reverse.destination };
                NatConfig::mapping_worker(forward.proto, host, external, usize::from(workers)) as u16
            }
            false => config.home_worker(&reverse),
        };
        let redirect = |key: Key| {
            // The claims on ports lead packets for NAT to their owner.
            let home = config.home_worker(&key);
            (home != owner && !nat.is_nat_destination(&key)).then_some((key, home))
        };
        let state = RedirectState::of_session(&session.track);
        Placement { owner, redirects: [redirect(forward), redirect(reverse)], state }
    }
}
