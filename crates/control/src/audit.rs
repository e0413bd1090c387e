//! The audit file: a line of JSON for each change and each refused login.
//!
//! Theory of operation. The file is opened before the daemon gives its rights up, and is only appended to.
//! Each record is one write, so that a program which reads the file meanwhile sees whole lines. A program
//! that has renamed the file makes the daemon open the name again ([`AuditFile::reopen`]); if that fails, the
//! records go on into the renamed file. Anyone on the network can be refused. So [`LOGINS`] refused logins a
//! second are recorded at most, and the next record of one tells how many are missing.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use mmb_system::log;
use serde::Serialize;

use crate::history::Author;
use crate::text::utc;

/// Refused logins that are recorded in a second.
const LOGINS: u32 = 100;

/// A file that is only appended to.
#[derive(Debug)]
pub struct AuditFile {
    path: PathBuf,
    state: Mutex<AuditState>,
}

#[derive(Debug)]
struct AuditState {
    file: File,
    /// The last write failed; the log has told so.
    has_failed: bool,
    /// The refused logins that were recorded since then.
    logins: (Instant, u32),
    /// Refused logins that were not recorded.
    missing: u64,
}

/// A line of the file.
#[derive(Serialize)]
struct AuditRecord<'a> {
    /// UTC (RFC 3339).
    time: String,
    /// `change` or `login`.
    event: &'static str,
    /// `done` or `refused`.
    result: &'static str,
    /// What the client asked for.
    what: &'a str,
    /// User of a local client.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<u32>,
    /// Process of a local client.
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<i32>,
    /// Name of a client on the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// Address of a client on the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    /// Status of the answer (RFC 9110).
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Why a login was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Refused logins before this one that are not in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<u64>,
}

impl AuditFile {
    /// Opens the file, or creates it with the mode 0640.
    ///
    /// # Errors
    /// The system refuses.
    pub fn open(path: &Path) -> io::Result<AuditFile> {
        let file = append_to(path)?;
        let state = AuditState { file, has_failed: false, logins: (Instant::now(), 0), missing: 0 };
        Ok(AuditFile { path: path.to_owned(), state: Mutex::new(state) })
    }

    /// Opens the name again, after the file was renamed.
    ///
    /// # Errors
    /// One sentence: the system refuses, and the earlier file stays open.
    pub fn reopen(&self) -> Result<(), String> {
        let file = append_to(&self.path).map_err(|e| {
            format!("cannot open the audit file {}: {e}; the earlier one is kept", self.path.display())
        })?;
        self.state.lock().unwrap_or_else(PoisonError::into_inner).file = file;
        Ok(())
    }

    /// Records a change, or that it was refused. `status`: that of the answer, if a client made the change.
    pub(crate) fn change(&self, author: &Author, is_done: bool, status: Option<u16>) {
        let record = AuditRecord {
            time: utc(SystemTime::now()),
            event: "change",
            result: if is_done { "done" } else { "refused" },
            what: &author.change,
            user: author.user,
            process: author.process,
            name: author.name.as_deref(),
            address: author.address,
            status,
            reason: None,
            missing: None,
        };
        self.write(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner), &record);
    }

    /// Records a refused login. `request`: method and path; empty without a request.
    pub(crate) fn login(&self, address: IpAddr, request: &str, status: Option<u16>, reason: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.admits_login(Instant::now()) {
            return;
        }
        let missing = std::mem::take(&mut state.missing);
        let record = AuditRecord {
            time: utc(SystemTime::now()),
            event: "login",
            result: "refused",
            what: request,
            user: None,
            process: None,
            name: None,
            address: Some(address),
            status,
            reason: Some(reason),
            missing: (missing > 0).then_some(missing),
        };
        self.write(&mut state, &record);
    }

    /// Writes a line. The log tells about the first failure of several.
    fn write(&self, state: &mut AuditState, record: &AuditRecord<'_>) {
        let written = serde_json::to_vec(record).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            state.file.write_all(&line)
        });
        if let Err(e) = &written
            && !state.has_failed
        {
            log::error(format!("error: cannot write the audit file {}: {e}\n", self.path.display()));
        }
        state.has_failed = written.is_err();
    }
}

impl AuditState {
    /// Whether a refused login is recorded. Counts it.
    fn admits_login(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.logins.0).as_secs() > 0 {
            self.logins = (now, 0);
        }
        self.logins.1 += 1;
        let is_admitted = self.logins.1 <= LOGINS;
        self.missing += u64::from(!is_admitted);
        is_admitted
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_renamed_file_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("audit"), directory.path().join("audit.1"));
        let file = AuditFile::open(&path).unwrap();
        let author = Author { name: Some("ci\n".to_owned()), ..Author::daemon("add all drop") };
        file.change(&author, true, Some(200));
        std::fs::rename(&path, &old).unwrap();
        file.change(&author, false, Some(404));
        file.reopen().unwrap();
        file.login([192, 0, 2, 7].into(), "GET /v1/rules", Some(401), "the token is not valid");
        let [first, second] = lines(&old).try_into().unwrap();
        assert_eq!((&first["result"], &first["what"]), (&"done".into(), &"add all drop".into()));
        assert_eq!((&first["name"], &first["status"]), (&"ci\n".into(), &200.into()));
        assert!(first.get("address").is_none() && first.get("missing").is_none());
        assert_eq!((&second["event"], &second["result"]), (&"change".into(), &"refused".into()));
        let [third] = lines(&path).try_into().unwrap();
        assert_eq!(
            (&third["address"], &third["reason"]),
            (&"192.0.2.7".into(), &"the token is not valid".into())
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(file.reopen().unwrap_err().contains("the earlier one is kept"));
        // What is appended again is kept.
        drop(AuditFile::open(&old).unwrap());
        assert_eq!(lines(&old).len(), 2);
    }

    #[test]
    fn refused_logins_do_not_fill_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let file = AuditFile::open(&directory.path().join("audit")).unwrap();
        let mut state = file.state.into_inner().unwrap();
        let start = state.logins.0;
        let admitted = (0..1000).filter(|_| state.admits_login(start)).count();
        assert_eq!((admitted, state.missing), (LOGINS as usize, 900));
        assert!(state.admits_login(start + Duration::from_secs(1)));
    }
}
