//! Commands on the history: `history`, `rollback`, `confirm`, and changes that wait for a confirmation.

use std::time::{Duration, Instant};

use mmb_lang::SourceSpan;
use mmb_system::log;

use crate::api::{ApplyReply, DiffReply, Done, HistoryList, PendingEntry, RevisionEntry};
use crate::config::file::{self, Snapshot};
use crate::error::{CommandError, Refusal};
use crate::history::{Author, REVISIONS, Revision};
use crate::text::count;
use crate::transaction::Control;
use crate::transaction::maintenance::utc;

/// Longest time that a change waits for its confirmation, in seconds.
pub(crate) const LONGEST_CONFIRMATION: u32 = 86_400;

impl Control {
    /// `history`: the revisions that are kept, the latest first.
    pub(crate) fn revisions(&self) -> HistoryList {
        let revisions = self.history().revisions().iter().rev().map(entry).collect();
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now()).as_secs_f64();
        let pending = self
            .history()
            .confirmation()
            .map(|c| PendingEntry { seconds: left(c.deadline).ceil() as u64, revision: c.revision });
        HistoryList { revisions, pending }
    }

    /// `history N`: what the change of a revision removed and added.
    ///
    /// # Errors
    /// The revision is not kept.
    pub(crate) fn revision_diff(&self, number: u64) -> Result<DiffReply, CommandError> {
        let (revision, before) = self.history().revision(number).ok_or_else(|| self.no_revision(number))?;
        let before = before.map(|before| before.snapshot).unwrap_or_default();
        Ok(file::diff(&before, &revision.snapshot))
    }

    /// `rollback [N]`: makes the configuration of a revision the current one; without a number, the one
    /// before the last change. A change that waits for its confirmation does not wait any more.
    ///
    /// # Errors
    /// The revision is not kept, or something that it needs is missing now.
    pub(crate) fn rollback(&self, number: Option<u64>) -> Result<Done, CommandError> {
        let current = self.history().current();
        let number = match number.or(current.checked_sub(1)) {
            Some(number @ 1..) if number != current => number,
            Some(number @ 1..) => {
                let message = format!("revision {number} is in force");
                return Err(CommandError::conflict(message, SourceSpan::default()));
            }
            _ => {
                let message = "nothing has changed since the start".to_owned();
                return Err(CommandError::conflict(message, SourceSpan::default()));
            }
        };
        let (revision, _) = self.history().revision(number).ok_or_else(|| self.no_revision(number))?;
        let reply = self.go_back(&revision.snapshot).map_err(|refusal| {
            let message = format!("revision {number} does not load: {refusal}");
            CommandError::failed(message, SourceSpan::default())
        })?;
        Ok(Done::new(format!("revision {number} is the configuration again: {}", reply.done)))
    }

    /// `confirm`: keeps the change that waits for it.
    ///
    /// # Errors
    /// None waits.
    pub(crate) fn confirm(&self) -> Result<Done, CommandError> {
        if self.history().confirm() {
            return Ok(Done::new("the change is confirmed and stays".to_owned()));
        }
        let error =
            CommandError::conflict("no change waits for a confirmation".to_owned(), SourceSpan::default());
        Err(error.help("`apply --confirm SECONDS FILE` makes one that does".to_owned()))
    }

    /// Makes `text` the configuration as [`Control::apply`] does, until it is confirmed or `seconds` have
    /// passed: then the configuration before it comes back.
    ///
    /// # Errors
    /// Those of [`Control::apply`], and a time of zero or of more than a day.
    pub fn apply_unconfirmed(
        &self,
        text: &[u8],
        allow_empty: bool,
        seconds: u32,
    ) -> Result<ApplyReply, Refusal> {
        if !(1..=LONGEST_CONFIRMATION).contains(&seconds) {
            return Err(Refusal::invalid(format!(
                "invalid time {seconds}: a change waits for its confirmation for 1 to {LONGEST_CONFIRMATION} seconds"
            )));
        }
        let time = Duration::from_secs(seconds.into());
        let mut reply = self.apply_with(text, allow_empty, Some(time))?;
        self.maintenance().request_confirmation_check();
        let seconds = count(seconds.into(), "second");
        reply.done.push_str(&format!("; it is taken back in {seconds} without `mmb confirm`"));
        Ok(reply)
    }

    /// Reads the file of the first configuration again and applies it. The log has the result.
    pub fn reload(&self) {
        let Some(file) = self.file() else {
            log::error("error: nothing to reload: the daemon was started without a configuration file\n");
            return;
        };
        let name = file.display();
        let applied = std::fs::read(file).map_err(|e| Refusal::failed(e.to_string()));
        let applied =
            applied.and_then(|text| Author::daemon(format!("reload of {name}")).run(|| self.apply(&text)));
        self.audit_own(&format!("reload of {name}"), applied.is_ok());
        match applied {
            Ok(reply) => log::info(format!("{name} reloaded: {}\n", reply.done)),
            Err(refusal) => {
                let line =
                    refusal.diagnostics.first().map_or(String::new(), |d| format!("line {}: ", d.line));
                log::error(format!("error: {name} is not reloaded: {line}{refusal}\n"));
            }
        }
    }

    /// Records a change that the daemon makes by itself.
    fn audit_own(&self, change: &str, is_done: bool) {
        if let Some(audit) = self.audit() {
            audit.change(&Author::daemon(change), is_done, None);
        }
    }

    /// Takes back the change that was not confirmed in time. Returns the time to the next deadline.
    pub(in crate::transaction) fn check_confirmation(&self) -> Option<Duration> {
        if let Some((revision, snapshot)) = self.history().take_expired(Instant::now()) {
            let author = Author::daemon(format!("no confirmation: back to revision {revision}"));
            let change = author.change.clone();
            let gone_back = author.run(|| self.go_back(&snapshot));
            self.audit_own(&change, gone_back.is_ok());
            match gone_back {
                Ok(reply) => log::error(format!(
                    "warning: the change was not confirmed; revision {revision} is the configuration again: {}\n",
                    reply.done
                )),
                Err(refusal) => log::error(format!(
                    "error: the change was not confirmed, and revision {revision} does not load: {refusal}\n"
                )),
            }
        }
        let confirmation = self.history().confirmation()?;
        Some(confirmation.deadline.saturating_duration_since(Instant::now()))
    }

    fn go_back(&self, snapshot: &Snapshot) -> Result<ApplyReply, Refusal> {
        self.replace(snapshot.text().as_bytes(), file::load_complete, None)
    }

    fn no_revision(&self, number: u64) -> CommandError {
        let message = format!("there is no revision {number}");
        let help = format!("`history` lists the last {REVISIONS} revisions");
        CommandError::not_found(message, SourceSpan::default()).help(help)
    }
}

fn entry(revision: &Revision) -> RevisionEntry {
    RevisionEntry {
        revision: revision.number,
        time: utc(revision.time),
        user: revision.author.user,
        process: revision.author.process,
        name: revision.author.name.clone(),
        address: revision.author.address.map(|address| address.to_string()),
        change: revision.author.change.clone(),
    }
}
