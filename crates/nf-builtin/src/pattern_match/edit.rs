//! `match … mask|remove|replace`: literals in streams are overwritten, removed or replaced.
//!
//! Theory of operation. A literal is found wherever segments end: what may be its beginning waits for the
//! next bytes ([`mmb_search::Literals`]). After a reload, streams go on with the new set; what waits is
//! looked at with it.
//!
//! A datagram of UDP is searched to its end, since nothing of it can wait. What may be the beginning of a
//! literal at its end is kept. If the literal ends in the next datagram, its part in that one is edited.
//!
//! With `first`, an occurrence counts if it ends within the first bytes of its stream. When both streams are
//! behind them, the function reads no more of the session.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytemuck::{Pod, Zeroable};
use mmb_nf::{
    ArgError, Context, Direction, EditError, Setup, StreamEdit, StreamFunction, StreamVerdict, WorkerCounters,
};
use mmb_search::Literals;

use super::config::{Config, Edit, EditConfig, Source};
use super::depth::Depth;
use crate::shared::direction::DirectionFilter;

/// As many as the longest literal can have.
const ASTERISKS: [u8; 1024] = [b'*'; 1024];

/// Counters: literals that were edited, those of them in two datagrams, those that were not edited, and from
/// there on by reason ([`EditError::ALL`]).
const EDITED: usize = 0;
const SPLIT: usize = 1;
const REFUSED: usize = 2;
const REASONS: usize = 3;

/// See the module's documentation.
pub(crate) struct PatternEdit {
    literals: ArcSwap<Literals>,
    /// The set in front of a reload, so that no worker frees it.
    earlier: Mutex<Option<Arc<Literals>>>,
    source: Source,
    edit: Edit,
    which: DirectionFilter,
    depth: Depth,
    totals: WorkerCounters<{ REASONS + EditError::ALL.len() }>,
}

/// The state of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct EditState {
    /// Bytes of each stream, as far as `first` asks for them.
    read: [u64; 2],
    /// Literals that were edited, by direction.
    edits: [u32; 2],
    /// A bit for each stream that has ended.
    ended: u32,
    unused: u32,
}

impl StreamFunction for PatternEdit {
    const TYPE: &'static str = "match";
    const USAGE: &'static str = Config::USAGE;
    const HELP: &'static str = Config::HELP;
    const EDITS: bool = true;

    type State = EditState;
    type Local = Vec<u8>;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let EditConfig { source, edit, which, depth } = EditConfig::parse(setup)?;
        let literals = ArcSwap::from_pointee(source.compile_with(|patterns| Literals::new(&patterns))?);
        let totals = WorkerCounters::new(setup.workers);
        Ok(PatternEdit { literals, earlier: Mutex::default(), source, edit, which, depth, totals })
    }

    fn edit(
        &self,
        data: &mut StreamEdit<'_, '_>,
        state: &mut EditState,
        cx: &mut Context<'_, Vec<u8>>,
    ) -> StreamVerdict {
        if !self.which.is(data.direction()) {
            return StreamVerdict::Pass;
        }
        let at = data.direction() as usize;
        // Bytes that were held back, or kept of the datagram before, come again.
        let again = data.held() + data.gone();
        let room = self.depth.left(state.read[at].saturating_sub(again as u64));
        if room == 0 {
            return self.depth.verdict(self.which, state.read, state.ended);
        }
        let bytes = data.joined(cx.local);
        let (mut edited, mut done, gone) = (0, 0, data.gone());
        let bytes = &bytes[..bytes.len().min(room)];
        let is_last = !data.can_hold() || bytes.len() == room;
        state.read[at] += (data.len() - again) as u64;
        let literals = self.literals.load();
        let open = literals.scan(bytes, is_last, |range| {
            done = range.end;
            let is_split = range.start < gone;
            let range = range.start.max(gone)..range.end;
            let new = match &self.edit {
                Edit::Mask => ASTERISKS.get(..range.len()).unwrap_or(&ASTERISKS),
                Edit::Remove => &[],
                Edit::Replace(new) => new,
            };
            match data.replace(range, new) {
                Ok(()) => {
                    edited += 1;
                    self.totals.add(cx.worker, SPLIT, is_split.into());
                }
                Err(reason) => {
                    self.totals.add(cx.worker, REFUSED, 1);
                    self.totals.add(cx.worker, REASONS + reason as usize, 1);
                }
            }
        });
        if data.is_datagram() {
            data.keep_from(literals.beginning(bytes, done));
        } else if open < bytes.len() {
            data.hold_from(open);
        }
        if edited != 0 {
            self.totals.add(cx.worker, EDITED, edited);
            state.edits[at] = state.edits[at].wrapping_add(edited as u32);
        }
        self.depth.verdict(self.which, state.read, state.ended)
    }

    fn end(
        &self,
        direction: Direction,
        state: &mut EditState,
        _: &mut Context<'_, Vec<u8>>,
    ) -> StreamVerdict {
        state.ended |= 1 << direction as u32;
        self.depth.verdict(self.which, state.read, state.ended)
    }

    fn describe(&self, EditState { edits: [forward, reverse], .. }: &EditState) -> Option<String> {
        Some(format!("{forward}/{reverse} edits"))
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        self.source.check_reload(args)?;
        let literals = self.source.compile_with(|patterns| Literals::new(&patterns))?;
        let before = self.literals.swap(Arc::new(literals));
        *self.earlier.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        Ok(())
    }

    fn report(&self) -> Vec<(String, String)> {
        let mut report = vec![("patterns".to_owned(), self.literals.load().len().to_string())];
        let reasons = EditError::ALL.map(|reason| format!("not edited: {}", reason.name()));
        let names = ["edited", "edited in two datagrams", "not edited"].into_iter();
        for (which, name) in names.chain(reasons.iter().map(String::as_str)).enumerate() {
            let count = self.totals.sum(which);
            if count != 0 || [EDITED, REFUSED].contains(&which) {
                report.push((name.to_owned(), count.to_string()));
            }
        }
        report
    }
}

#[cfg(test)]
mod tests;
