//! Sessions that outlive the process: the names of what they refer to.
//!
//! Theory of operation. The engine copies sessions with its own numbers of ports, rules and pools. The
//! control side adds their names ([`Control::save_sessions`]). In the next process, these names give the
//! numbers of that process ([`Control::restore`]). A rule is the same if it has the same text, apart from its
//! name and its comment.
//!
//! Ports take part in no forwarding while sessions are copied, so that no packet changes one that is copied
//! already. They take part only after all sessions are restored, so that no packet opens a session that is
//! about to be restored.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mmb_dataplane::{
    KeptRules, NO_POOL, NO_PORT, NotRestored, RestoreReport, SavedRule, SavedSession, SavedSessions,
    SessionFile, WorkerFailure,
};
use mmb_flow::Key;

use crate::config::Config;
use crate::text::count;
use crate::transaction::{Control, State};

/// Sessions that were saved longer ago are not read: nearly all would have timed out.
const OLDEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The fate of the sessions of an earlier process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredSessions {
    report: RestoreReport,
    time: Duration,
}

impl std::fmt::Display for RestoredSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RestoredSessions { report, time } = self;
        write!(f, "{} restored in {} ms", count(report.restored, "session"), time.as_millis())?;
        let left_out = NotRestored::ALL.into_iter().zip(report.left_out).filter(|(_, number)| *number > 0);
        let reasons: Vec<_> = left_out.map(|(reason, number)| format!("{number} {reason}")).collect();
        if reasons.is_empty() { Ok(()) } else { write!(f, "; left out: {}", reasons.join(", ")) }
    }
}

impl Control {
    /// Stops all ports, and returns the sessions with the names of what they refer to. `owner`: the name of
    /// this daemon. The ports stay stopped until the next change.
    ///
    /// # Errors
    /// The engine works no longer.
    pub fn save_sessions(&self, owner: &str) -> Result<SessionFile, WorkerFailure> {
        let (_turn, state) = self.begin();
        self.save(&state, owner)
    }

    /// Does what [`Control::save_sessions`] does, within a change.
    pub(super) fn save(&self, state: &State, owner: &str) -> Result<SessionFile, WorkerFailure> {
        self.engine().publish(state.config.forwarding(|_| false))?;
        let saved = self.engine().save_sessions().unwrap_or_default();
        Ok(Control::named(state, owner, saved))
    }

    /// Adds the names of what sessions refer to.
    pub(super) fn named(state: &State, owner: &str, saved: SavedSessions) -> SessionFile {
        let slots: HashSet<u32> = saved.lists.iter().flatten().map(|rule| rule.slot).collect();
        let rules = state.config.policy().rules().filter(|view| slots.contains(&view.slot));
        SessionFile {
            owner: owner.to_owned(),
            saved_at: milliseconds(SystemTime::now()),
            ports: state.config.interfaces().iter().map(|i| (i.id.0, i.name.clone())).collect(),
            rules: rules.map(|view| (view.slot, view.body.to_owned())).collect(),
            pools: state.config.nat().compiled().pools().iter().map(|pool| pool.name().to_owned()).collect(),
            followed: state
                .config
                .nat()
                .followed()
                .iter()
                .map(|(name, at)| (name.clone(), at.octets()))
                .collect(),
            saved,
        }
    }

    /// Gives the engine the sessions of an earlier process, before any port is open. Pools that follow an
    /// interface have the address that it had then, until the present one is known.
    pub(in crate::transaction) fn restore(
        &self,
        state: &mut State,
        file: SessionFile,
    ) -> Option<RestoredSessions> {
        let begin = SystemTime::now();
        let nat = state.config.nat();
        let followed = file.followed.iter().filter(|(name, _)| nat.followers(name).next().is_some());
        let followed: BTreeMap<_, _> =
            followed.map(|(name, at)| (name.clone(), Ipv4Addr::from(*at))).collect();
        if !followed.is_empty() {
            state.config.nat_mut().follow(followed);
        }
        // If it fails, the hook of `Control::on_failure` tells why.
        self.publish(state).ok()?;
        self.insert(state, file, begin)
    }

    /// Makes up for what has changed since the sessions were copied that [`Control::restore`] got: forgets
    /// those with the keys `gone`, and inserts those in the file.
    pub(in crate::transaction) fn restore_changes(
        &self,
        state: &mut State,
        (before, gone): (Option<RestoredSessions>, Vec<[Key; 2]>),
        file: SessionFile,
    ) -> Option<RestoredSessions> {
        let begin = SystemTime::now();
        let forgotten = self.engine().forget_restored(gone)?;
        let mut all = self.insert(state, file, begin)?;
        if let Some(before) = before {
            all.report.add(&before.report);
        }
        all.report.restored = all.report.restored.saturating_sub(forgotten);
        Some(all)
    }

    /// Inserts sessions under the published configuration.
    fn insert(&self, state: &State, file: SessionFile, begin: SystemTime) -> Option<RestoredSessions> {
        let (sessions, kept) = renumbered(&state.config, file, begin);
        let report = self.engine().restore_sessions(&sessions, kept)?;
        Some(RestoredSessions { report, time: begin.elapsed().unwrap_or_default() })
    }
}

/// Checks whether a file of sessions is for this daemon, and new enough.
///
/// # Errors
/// The reason, as a sentence about the file.
pub fn check_session_file(file: &SessionFile, owner: &str) -> Result<(), String> {
    if file.owner != owner {
        return Err(format!("it is of the daemon at {}", file.owner));
    }
    let age = milliseconds(SystemTime::now()).saturating_sub(file.saved_at);
    if Duration::from_millis(age) > OLDEST {
        return Err("it is older than a day".to_owned());
    }
    Ok(())
}

/// Milliseconds since 1970.
fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// Gives sessions the numbers of a configuration. Sessions whose interface is gone are left out. Returns the
/// rules that are left of their lists, too.
fn renumbered(config: &Config, file: SessionFile, now: SystemTime) -> (Vec<SavedSession>, Vec<KeptRules>) {
    let away = u32::try_from(milliseconds(now).saturating_sub(file.saved_at)).unwrap_or(u32::MAX);
    let ports: HashMap<u16, u16> =
        file.ports.iter().filter_map(|(old, name)| Some((*old, config.port_of(name)?))).collect();
    let pools: Vec<Option<u16>> =
        file.pools.iter().map(|name| Some(config.nat().compiled().pool(name)?.0)).collect();
    let port = |old: u16| ports.get(&old).copied().unwrap_or(NO_PORT);
    let sessions = file.saved.sessions.into_iter().filter_map(|mut session| {
        session.age_by(away);
        session.in_port = session.in_port.map(port);
        session.host_port = port(session.host_port);
        if session.pool != NO_POOL {
            session.pool = pools.get(usize::from(session.pool)).copied().flatten()?;
        }
        (session.in_port[0] != NO_PORT).then_some(session)
    });
    let by_text: HashMap<&str, u32> = config.policy().rules().map(|view| (view.body, view.slot)).collect();
    let slots: HashMap<u32, u32> =
        file.rules.iter().filter_map(|(old, text)| Some((*old, *by_text.get(text.as_str())?))).collect();
    let kept = file.saved.lists.iter().map(|list| {
        let mut kept = KeptRules::default();
        for rule in list {
            match slots.get(&rule.slot) {
                Some(&slot) => kept.rules.push(SavedRule { slot, ..*rule }),
                None => kept.lost_translation |= rule.translates,
            }
        }
        kept.rules.sort_unstable_by_key(|rule| rule.slot);
        kept.rules.dedup_by_key(|rule| rule.slot);
        kept
    });
    let kept = kept.collect();
    (sessions.collect(), kept)
}
