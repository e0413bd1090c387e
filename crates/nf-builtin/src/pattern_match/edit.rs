//! `match … mask|remove|replace`: literals in TCP streams are overwritten, removed or replaced.
//!
//! Theory of operation. A literal is found wherever segments end: what may be its beginning waits for the
//! next bytes ([`mmb_search::Literals`]). After a reload, streams go on with the new set; what waits is
//! looked at with it.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use mmb_nf::{ArgError, Context, Setup, StreamEdit, StreamFunction, StreamVerdict, WorkerCounters};
use mmb_search::Literals;

use super::config::{Config, Edit, EditConfig, Source};
use crate::shared::direction::DirectionFilter;

/// As many as the longest literal can have.
const ASTERISKS: [u8; 1024] = [b'*'; 1024];

/// See the module's documentation.
pub(crate) struct PatternEdit {
    literals: ArcSwap<Literals>,
    /// The set in front of a reload, so that no worker frees it.
    earlier: Mutex<Option<Arc<Literals>>>,
    source: Source,
    edit: Edit,
    which: DirectionFilter,
    /// Literals that were edited, literals that could not be.
    totals: WorkerCounters<2>,
}

impl StreamFunction for PatternEdit {
    const TYPE: &'static str = "match";
    const USAGE: &'static str = Config::USAGE;
    const HELP: &'static str = Config::HELP;
    const EDITS: bool = true;

    /// Literals that were edited, by direction.
    type State = [u32; 2];
    type Local = Vec<u8>;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let EditConfig { source, edit, which } = EditConfig::parse(setup)?;
        let literals = ArcSwap::from_pointee(source.compile_with(|patterns| Literals::new(&patterns))?);
        let totals = WorkerCounters::new(setup.workers);
        Ok(PatternEdit { literals, earlier: Mutex::default(), source, edit, which, totals })
    }

    fn edit(
        &self,
        data: &mut StreamEdit<'_, '_>,
        counts: &mut [u32; 2],
        cx: &mut Context<'_, Vec<u8>>,
    ) -> StreamVerdict {
        if !self.which.is(data.direction()) {
            return StreamVerdict::Pass;
        }
        let mut chunks = data.chunks();
        let (first, second) = (chunks.next().unwrap_or(&[]), chunks.next());
        let bytes = if second.is_none() {
            first
        } else {
            cx.local.clear();
            data.chunks().for_each(|chunk| cx.local.extend_from_slice(chunk));
            cx.local.as_slice()
        };
        let (mut edited, mut refused) = (0, 0);
        let is_last = !data.can_hold();
        let open = self.literals.load().scan(bytes, is_last, |range| {
            let new = match &self.edit {
                Edit::Mask => ASTERISKS.get(..range.len()).unwrap_or(&ASTERISKS),
                Edit::Remove => &[],
                Edit::Replace(new) => new,
            };
            let is_edited = data.replace(range, new).is_ok();
            *if is_edited { &mut edited } else { &mut refused } += 1;
        });
        if open < bytes.len() {
            data.hold_from(open);
        }
        if edited | refused != 0 {
            self.totals.add(cx.worker, 0, edited);
            self.totals.add(cx.worker, 1, refused);
            let count = &mut counts[data.direction() as usize];
            *count = count.wrapping_add(edited as u32);
        }
        StreamVerdict::Pass
    }

    fn describe(&self, [forward, reverse]: &[u32; 2]) -> Option<String> {
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
        let [edited, refused] = [0, 1].map(|which| self.totals.sum(which).to_string());
        vec![
            ("patterns".to_owned(), self.literals.load().len().to_string()),
            ("edited".to_owned(), edited),
            ("not edited".to_owned(), refused),
        ]
    }
}

#[cfg(test)]
mod tests;
