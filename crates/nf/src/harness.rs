//! Chains without an engine, for tests of functions.
//!
//! Theory of operation. A [`Harness`] has the runner of a worker and a plain session table. Every packet
//! without a session opens one. There are no rules, no timeouts and no translation: translation requests of
//! functions are ignored.
//!
//! ```
//! # fn main() -> Result<(), mmb_nf::harness::HarnessError> {
//! use mmb_nf::{ChainVerdict, Harness, Registry};
//! use mmb_packet::build::{Frame, Ip4, Udp};
//!
//! let mut harness = Harness::new(Registry::default(), "nf add again flow\nchain add main again")?;
//! let frame = Frame::new(Ip4::new([192, 0, 2, 1], [192, 0, 2, 2]), Udp::new(1000, 53)).build();
//! let done = harness.send("main", &[frame.clone()]);
//! assert_eq!((done[0].verdict, &done[0].frame), (ChainVerdict::Pass, &frame));
//! # Ok(())
//! # }
//! ```

mod large;
mod sessions;

use std::collections::HashMap;
use std::sync::Arc;

use mmb_flow::layout::Order;
use mmb_flow::{Direction, FlowRef, Key, SessionId, SessionSettings, Table};
use mmb_lang::{Chain, Command, Diagnostic, Domain, NfInstance};
use mmb_packet::{DropReason, Meta, PacketBuf, TailSegments, VecPacket};

pub use self::large::{LargeFrames, segments_of};
use self::sessions::Sessions;
use crate::process::{ProcessHost, ProcessSetup};
use crate::set::VECTOR;
use crate::{
    Admission, ChainVerdict, HeldEvent, OpeningPacket, Packet, PacketView, Program, ProgramError,
    ProgramSpec, Registry, Runner, SessionAccess, TranslationRequest,
};

/// The port at which forward packets come in and reverse packets go out.
pub const NEAR: u16 = 0;
/// The port at which forward packets go out and reverse packets come in.
pub const FAR: u16 = 1;

/// Most bytes of a session's scratchpad.
const SCRATCHPAD_LIMIT: usize = 512;
const SESSIONS: u32 = 4096;

/// The result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// What became of the packet.
    pub verdict: ChainVerdict,
    /// A function has answered the packet with [`Sent::frame`], and no session was opened.
    pub is_answered: bool,
    /// The packet afterwards.
    pub frame: Vec<u8>,
    /// Frames that functions have sent because of it, each with its output port. Large frames are segmented.
    pub emitted: Vec<(u16, Vec<u8>)>,
}

/// Why lines of a configuration are not accepted.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// There is no memory for the session table.
    #[error("no memory for the session table: {0}")]
    Table(#[from] std::io::Error),
    /// A line is not in the language.
    #[error("`{line}`: {error}")]
    Syntax {
        /// The line.
        line: String,
        /// The error.
        error: Diagnostic,
    },
    /// A line is of another kind.
    #[error("`{0}` is neither `domain add` nor `nf add` nor `chain add`")]
    OtherCommand(String),
    /// An instance or a chain is wrong.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Chains with sessions. See the module's theory of operation.
pub struct Harness {
    registry: Registry,
    program: Arc<Program>,
    runner: Runner,
    sessions: Sessions,
    /// Held packets by ticket.
    held: HashMap<u32, InChain>,
    /// Sessions that functions have ended.
    ending: Vec<SessionId>,
    /// Starts functions with `process`. None: they run here.
    processes: Option<Arc<dyn ProcessHost>>,
    /// Frames with more payload than that of a segment are large ones. None: all are ordinary.
    large: Option<LargeFrames>,
}

/// A packet in a chain.
#[derive(Clone, Debug)]
struct InChain {
    sent: Sent,
    found: FlowRef,
    meta: Meta,
}

impl Harness {
    /// Makes a harness with these function types, and with the instances and chains of lines of the language
    /// (`nf add …`, `chain add …`).
    ///
    /// # Errors
    /// The line that is wrong, and why.
    pub fn new(registry: Registry, lines: &str) -> Result<Harness, HarnessError> {
        Harness::with_sessions(registry, lines, SESSIONS)
    }

    /// Makes a harness with room for this number of sessions.
    ///
    /// # Errors
    /// As [`Harness::new`].
    pub fn with_sessions(registry: Registry, lines: &str, sessions: u32) -> Result<Harness, HarnessError> {
        let table = Table::new(sessions, SCRATCHPAD_LIMIT, 1)?;
        let mut harness = Harness {
            registry,
            program: Arc::default(),
            runner: Runner::new(0, 1, sessions as usize),
            sessions: Sessions { table, now: 1, mtu: usize::MAX },
            held: HashMap::new(),
            ending: Vec::new(),
            processes: None,
            large: None,
        };
        harness.load(lines)?;
        Ok(harness)
    }

    /// Makes a harness whose functions with `process` run in processes of this host.
    ///
    /// # Errors
    /// As [`Harness::new`].
    pub fn with_processes(
        registry: Registry,
        lines: &str,
        processes: Arc<dyn ProcessHost>,
    ) -> Result<Harness, HarnessError> {
        let mut harness = Harness::new(registry, "")?;
        harness.processes = Some(processes);
        harness.load(lines)?;
        Ok(harness)
    }

    /// Replaces all instances and chains. Sessions stay.
    ///
    /// # Errors
    /// The line that is wrong, and why. Nothing is changed.
    pub fn load(&mut self, lines: &str) -> Result<(), HarnessError> {
        self.load_with(lines, Order::Maximal)
    }

    /// Replaces all instances and chains, with a choice of how scratchpads are laid out.
    ///
    /// # Errors
    /// See [`Harness::load`].
    pub fn load_with(&mut self, lines: &str, order: Order) -> Result<(), HarnessError> {
        let Lines { domains, functions, chains } = parse_lines(lines)?;
        let program = Program::compile(&ProgramSpec {
            functions: &functions,
            chains: &chains,
            registry: &self.registry,
            resolve_port: &|name| match name {
                "near" => Some(NEAR),
                "far" => Some(FAR),
                _ => None,
            },
            has_pool: &|_| true,
            workers: 1,
            seed: 1,
            files: &Default::default(),
            processes: ProcessSetup { domains: &domains, host: self.processes.as_deref() },
            previous: Some(&self.program),
            scratchpad_limit: SCRATCHPAD_LIMIT,
            order,
        });
        self.program = Arc::new(program?);
        self.runner.set_program(&self.program, &SessionSettings::default());
        Ok(())
    }

    /// Returns the compiled chains.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the runner.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Sets the bytes of the longest IP packet that outputs take. Functions do not make datagrams longer.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.sessions.mtu = mtu;
    }

    /// Gives functions frames with more payload than that of a segment as large ones from now on. None: all
    /// are ordinary.
    pub fn set_large(&mut self, large: Option<LargeFrames>) {
        self.large = large;
    }

    /// Lets milliseconds pass.
    pub fn wait(&mut self, milliseconds: u32) {
        self.sessions.now = self.sessions.now.wrapping_add(milliseconds);
    }

    /// Returns the number of sessions.
    pub fn sessions(&self) -> u32 {
        self.sessions.table.len()
    }

    /// Sends frames through a chain, in vectors. The first packet of a session opens it, and comes in at
    /// [`NEAR`]. Frames that are not IP, and fragments, pass.
    ///
    /// # Panics
    /// If the chain does not exist.
    pub fn send(&mut self, chain: &str, frames: &[Vec<u8>]) -> Vec<Sent> {
        assert!(self.program.chain(chain).is_some(), "there is no chain `{chain}`");
        frames.chunks(VECTOR).flat_map(|frames| self.vector(chain, frames)).collect()
    }

    /// Takes the session of a frame out of its chain, and sends the frame. None: there is no session, or it
    /// does not pass the runner any more.
    pub fn send_without_chain(&mut self, frame: &[u8]) -> Option<Sent> {
        let (found, _, meta) = self.sessions.look_up(frame)?;
        let id = found.is_some().then(|| found.session())?;
        let info = self.sessions.info(id);
        if !self.runner.detach(self.sessions.table.scratch_mut(id), &info) {
            self.sessions.table.remove(id);
            return None;
        }
        let frame = frame.to_vec();
        let sent = Sent { verdict: ChainVerdict::Pass, is_answered: false, frame, emitted: Vec::new() };
        self.run(vec![InChain { sent, found, meta }], false).pop()
    }

    /// Returns what `show connections verbose` prints of the session of a frame. None: there is no session.
    pub fn describe(&self, frame: &[u8]) -> Option<Vec<(String, String)>> {
        let (found, ..) = self.sessions.look_up(frame)?;
        let id = found.is_some().then(|| found.session())?;
        Some(self.runner.describe(id, self.sessions.table.scratch(id)))
    }

    /// Returns the packets that functions have released or dropped since, in the order in which they go on.
    /// Packets that a function holds again are not among them.
    pub fn released(&mut self) -> Vec<Sent> {
        let mut done = Vec::new();
        self.runner.poll_processes();
        loop {
            let mut resumed = Vec::new();
            while let Some(event) = self.runner.next_held_event() {
                let (HeldEvent::Released(ticket) | HeldEvent::Dropped(ticket, _)) = event;
                let Some(mut packet) = self.held.remove(&ticket) else { continue };
                match event {
                    HeldEvent::Released(_) => resumed.push(packet),
                    HeldEvent::Dropped(_, reason) => {
                        packet.sent.verdict = ChainVerdict::Drop(reason);
                        done.push(packet.sent);
                    }
                }
            }
            if resumed.is_empty() {
                return done;
            }
            for vector in resumed.chunks(VECTOR) {
                let sent = self.run(vector.to_vec(), true);
                done.extend(sent.into_iter().filter(|sent| sent.verdict != ChainVerdict::Hold));
            }
        }
    }

    /// Lets milliseconds pass, and drops packets that were held for too long: see [`Harness::released`].
    pub fn expire(&mut self, milliseconds: u32) {
        self.wait(milliseconds);
        while self.runner.tick(self.sessions.now, VECTOR) {}
    }

    fn vector(&mut self, chain: &str, frames: &[Vec<u8>]) -> Vec<Sent> {
        let (mut places, mut in_chain) = (Vec::new(), Vec::new());
        let mut sent: Vec<Sent> = Vec::new();
        for frame in frames {
            let mut one = Sent {
                verdict: ChainVerdict::Pass,
                is_answered: false,
                frame: frame.clone(),
                emitted: Vec::new(),
            };
            if let Some((found, meta)) = self.find(chain, &mut one) {
                places.push(sent.len());
                in_chain.push(InChain { sent: one.clone(), found, meta });
            }
            sent.push(one);
        }
        for (at, one) in places.into_iter().zip(self.run(in_chain, false)) {
            sent[at] = one;
        }
        sent
    }

    /// Takes packets through their chains, or on from the functions that held them.
    fn run(&mut self, mut in_chain: Vec<InChain>, is_resumed: bool) -> Vec<Sent> {
        let mut verdicts = [ChainVerdict::Pass; VECTOR];
        let mut packets = Vec::new();
        let tail_of = |one: &InChain| self.large?.tail_of(&one.sent.frame);
        let tails: Vec<_> = in_chain.iter().map(tail_of).collect();
        for (InChain { sent, found, meta }, tail) in in_chain.iter_mut().zip(&tails) {
            let (direction, session) = (found.direction(), found.session());
            let (in_port, out_port) = if direction == Direction::Forward { (NEAR, FAR) } else { (FAR, NEAR) };
            meta.out_port = out_port;
            let len = sent.frame.len();
            let large = self.large.filter(|_| tail.is_some());
            let head = large.map_or(len, |large| len.min(large.buffer));
            packets.push(Packet {
                head: &mut sent.frame[..head],
                tail: tail.as_ref().map(|tail| tail as &dyn TailSegments),
                meta,
                len: len as u32,
                segment_size: large.map_or(0, |large| large.segment_size),
                in_port,
                direction,
                session,
            });
        }
        let Harness { runner, sessions, .. } = self;
        match is_resumed {
            true => runner.resume(sessions.now, &mut packets, sessions, &mut verdicts),
            false => {
                let all_pass = runner.run(sessions.now, &mut packets, sessions, &mut verdicts);
                assert_eq!(all_pass, verdicts[..packets.len()].iter().all(|one| *one == ChainVerdict::Pass));
            }
        }
        drop(packets);
        let emissions = self.runner.emissions();
        let last = in_chain.len().saturating_sub(1);
        for emission in emissions.iter() {
            // Frames that belong to no packet are shown with the last one.
            if let Some(one) = in_chain.get_mut(emission.packet.map_or(last, usize::from)) {
                let frames = segments_of(emission.frame, emission.segment_size);
                one.sent.emitted.extend(frames.into_iter().map(|frame| (emission.out_port, frame)));
            }
        }
        emissions.clear();
        let done = in_chain.into_iter().zip(verdicts).map(|(mut one, verdict)| {
            one.sent.verdict = verdict;
            match verdict {
                ChainVerdict::End(_) => self.ending.push(one.found.session()),
                ChainVerdict::Hold => {
                    // What was sent because of it has left.
                    let sent = Sent { emitted: Vec::new(), ..one.sent.clone() };
                    self.held.insert(one.meta.stage.ticket(), InChain { sent, ..one.clone() });
                }
                _ => {}
            }
            one.sent
        });
        let mut done: Vec<Sent> = done.collect();
        self.end_drained();
        let reinjected = self.reinjected();
        if let Some(last) = done.last_mut() {
            last.emitted.extend(reinjected);
        }
        done
    }

    /// Takes frames of functions through the chains of their sessions. Returns what leaves, with its ports.
    fn reinjected(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut left = Vec::new();
        while let Some(made) = self.runner.emissions().reinject(|one| {
            let meta = one.meta()?;
            let frame = one.frame.to_vec();
            let sent = Sent { verdict: ChainVerdict::Pass, is_answered: false, frame, emitted: Vec::new() };
            Ok::<_, DropReason>((InChain { sent, found: one.flow, meta }, one.out_port))
        }) {
            let Ok((packet, out_port)) = made else { continue };
            for sent in self.run(vec![packet], false) {
                left.extend(sent.emitted);
                if sent.verdict == ChainVerdict::Pass {
                    left.push((out_port, sent.frame));
                }
            }
        }
        left
    }

    /// Ends the sessions that functions have ended, after the packets that were released before.
    fn end_drained(&mut self) {
        if !self.runner.is_draining() {
            std::mem::take(&mut self.ending).into_iter().for_each(|id| self.end(id));
        }
    }

    /// Finds or opens the session of a packet. None: the packet does not enter the chain.
    fn find(&mut self, chain: &str, one: &mut Sent) -> Option<(FlowRef, Meta)> {
        let chain = self.program.chain(chain)?;
        let (mut found, key, mut meta) = self.sessions.look_up(&one.frame)?;
        if !found.is_some() {
            match self.admit(chain, one, &key, &mut meta) {
                Admission::Open => {}
                Admission::Drop(reason) => {
                    one.verdict = ChainVerdict::Drop(reason);
                    return None;
                }
                Admission::Answer => {
                    one.is_answered = true;
                    return None;
                }
            }
            let id = self.sessions.table.insert(&key, &key.reversed(), self.sessions.now).ok()?;
            found = FlowRef::new(id, Direction::Forward);
            self.sessions.table.reserve_scratch(id, self.program.bytes());
            let info = self.sessions.info(id);
            let opener = PacketView { head: &one.frame, meta: &meta, direction: Direction::Forward };
            self.runner.open(chain, self.sessions.table.scratch_mut(id), &info, &opener);
        } else {
            self.sessions.table.reserve_scratch(found.session(), self.program.bytes());
            let info = self.sessions.info(found.session());
            let opener = PacketView { head: &one.frame, meta: &meta, direction: found.direction() };
            self.runner.migrate(self.sessions.table.scratch_mut(found.session()), chain, &info, &opener);
        }
        self.sessions.table.flow_mut(found).count(1, one.frame.len() as u32);
        Some((found, meta))
    }

    fn admit(&mut self, chain: crate::ChainId, one: &mut Sent, key: &Key, meta: &mut Meta) -> Admission {
        let mut packet = VecPacket::new(&one.frame);
        let now = self.sessions.now;
        let mut first = OpeningPacket {
            packet: &mut packet,
            meta,
            key,
            in_port: NEAR,
            now,
            translation: TranslationRequest::default(),
        };
        let admission = self.runner.admit(chain, &mut first);
        one.frame = packet.head().to_vec();
        admission
    }

    fn end(&mut self, id: SessionId) {
        if self.sessions.table.is_live(id) {
            let info = self.sessions.info(id);
            self.runner.release(self.sessions.table.scratch_mut(id), &info);
            self.sessions.table.remove(id);
        }
    }

    /// Ends all sessions. Returns the frames that functions send then.
    pub fn end_all(&mut self) -> Vec<(u16, Vec<u8>)> {
        while let Some(id) = self.sessions.table.next_session(0) {
            self.end(id);
        }
        let emissions = self.runner.emissions();
        let sent = emissions.iter().map(|emission| (emission.out_port, emission.frame.to_vec())).collect();
        emissions.clear();
        sent
    }
}

#[derive(Default)]
struct Lines {
    domains: Vec<Domain>,
    functions: Vec<NfInstance>,
    chains: Vec<Chain>,
}

fn parse_lines(lines: &str) -> Result<Lines, HarnessError> {
    let Lines { mut domains, mut functions, mut chains } = Lines::default();
    for line in lines.lines() {
        let command = mmb_lang::parse_line(line);
        match command.map_err(|error| HarnessError::Syntax { line: line.to_owned(), error })? {
            Some(Command::DomainAdd(domain)) => domains.push(domain),
            Some(Command::NfAdd(add)) => functions.push(add),
            Some(Command::ChainAdd(chain)) => chains.push(chain),
            None => {}
            Some(_) => return Err(HarnessError::OtherCommand(line.to_owned())),
        }
    }
    Ok(Lines { domains, functions, chains })
}
