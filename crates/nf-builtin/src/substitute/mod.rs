//! `substitute`: replaces a word in TCP streams by another one, or removes it.
//!
//! A word is found wherever segments end. What may be its beginning waits for the next bytes.

use memchr::memmem::Finder;
use mmb_nf::{ArgError, Context, Setup, StreamEdit, StreamFunction, StreamVerdict, WorkerCounters};

/// See the module's documentation.
pub(crate) struct Substitute {
    finder: Finder<'static>,
    new: Box<[u8]>,
    /// Words that were replaced, words that could not be.
    totals: WorkerCounters<2>,
}

impl StreamFunction for Substitute {
    const TYPE: &'static str = "substitute";
    const USAGE: &'static str = "WORD [NEW]";
    const HELP: &'static str = "replaces a word in TCP streams by another one, or removes it";
    const EDITS: bool = true;

    /// Words that were replaced, by direction.
    type State = [u32; 2];
    type Local = Vec<u8>;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let (word, new) = match setup.args {
            [word] => (*word, ""),
            [word, new] => (*word, *new),
            _ => return Err("`substitute` has a word, and the one in its place".into()),
        };
        if word.is_empty() {
            return Err("`substitute` does not replace an empty word".into());
        }
        let totals = WorkerCounters::new(setup.workers);
        Ok(Substitute { finder: Finder::new(word).into_owned(), new: new.as_bytes().into(), totals })
    }

    fn edit(
        &self,
        data: &mut StreamEdit<'_, '_>,
        counts: &mut [u32; 2],
        cx: &mut Context<'_, Vec<u8>>,
    ) -> StreamVerdict {
        let mut chunks = data.chunks();
        let (first, second) = (chunks.next().unwrap_or(&[]), chunks.next());
        let bytes = if second.is_none() {
            first
        } else {
            cx.local.clear();
            data.chunks().for_each(|chunk| cx.local.extend_from_slice(chunk));
            cx.local.as_slice()
        };
        let word = self.finder.needle();
        let mut at = 0;
        while let Some(found) = bytes.get(at..).and_then(|rest| self.finder.find(rest)) {
            let start = at + found;
            at = start + word.len();
            let is_replaced = data.replace(start..at, &self.new).is_ok();
            self.totals.add(cx.worker, usize::from(!is_replaced), 1);
            let count = &mut counts[data.direction() as usize];
            *count = count.wrapping_add(is_replaced.into());
        }
        let first = at.max((bytes.len() + 1).saturating_sub(word.len()));
        let begins = |&at: &usize| bytes.get(at..).is_some_and(|rest| word.starts_with(rest));
        if let Some(begin) = (first..bytes.len()).find(begins) {
            data.hold_from(begin);
        }
        StreamVerdict::Pass
    }

    fn describe(&self, [forward, reverse]: &[u32; 2]) -> Option<String> {
        Some(format!("{forward}/{reverse} words"))
    }

    fn report(&self) -> Vec<(String, String)> {
        let names = ["words replaced", "words not replaced"].into_iter();
        names.enumerate().map(|(n, name)| (name.to_owned(), self.totals.sum(n).to_string())).collect()
    }
}

#[cfg(test)]
mod tests;
