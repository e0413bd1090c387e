//! Sessions that outlive the daemon, in a file of the state directory.
//!
//! Theory of operation. A clean stop writes the file, and the next start takes it: it is removed before its
//! sessions are used, so that no sessions come back twice. Without a state directory there is no file. The
//! file is not synchronized with the disk, since a crash of the machine ends the connections anyway, and the
//! checksum shows what is missing.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use mmb_control::{Control, SessionFile, check_session_file, count};
use mmb_system::{log, replace_file, take_file};

/// Name of the file.
const NAME: &str = "sessions";
/// Most bytes of a session, and of everything else in a file.
const LIMITS: (u64, u64) = (256, 256 << 20);

/// The name of the daemon with this control socket.
pub fn owner_of(socket: &Path) -> String {
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    socket.to_string_lossy().into_owned()
}

/// The file of a daemon.
pub struct SessionStorage {
    path: PathBuf,
    /// The control socket, which names the daemon.
    owner: String,
}

impl SessionStorage {
    /// The file in a state directory, of the daemon with this control socket.
    pub fn new(state: &Path, socket: &Path) -> SessionStorage {
        SessionStorage { path: state.join(NAME), owner: owner_of(socket) }
    }

    /// Takes the sessions of an earlier process, of at most `most`. Logs why they are not read.
    pub fn take(&self, most: usize) -> Option<SessionFile> {
        let limit = LIMITS.0 * most as u64 + LIMITS.1;
        let bytes = take_file(&self.path, limit).map_err(|error| error.to_string());
        let read = bytes.and_then(|bytes| {
            let file = bytes.map(|bytes| SessionFile::read(&bytes)).transpose().map_err(|e| e.to_string())?;
            file.iter().try_for_each(|file| check_session_file(file, &self.owner))?;
            Ok(file)
        });
        read.unwrap_or_else(|reason| {
            let path = self.path.display();
            log::error(format!("error: the sessions in {path} are not restored: {reason}\n"));
            None
        })
    }

    /// Stops all ports and saves the sessions. Logs what was saved, or why nothing was.
    pub fn save(&self, control: &Control) {
        let file = match control.save_sessions(&self.owner) {
            Ok(file) => file,
            Err(failure) => return log::error(format!("error: sessions are not saved: {failure}\n")),
        };
        let (sessions, left_out) = (file.saved.sessions.len() as u64, file.saved.left_out);
        if sessions == 0 && left_out == 0 {
            return;
        }
        let written = replace_file(&self.path, |out| {
            let mut out = BufWriter::with_capacity(1 << 20, out);
            file.write(&mut out)?;
            out.flush()
        });
        match written {
            Ok(()) if left_out == 0 => log::info(format!("{} saved\n", count(sessions, "session"))),
            Ok(()) => log::info(format!("{} saved, {left_out} left out\n", count(sessions, "session"))),
            Err(error) => {
                let path = self.path.display();
                log::error(format!("error: sessions are not saved: cannot write {path}: {error}\n"));
            }
        }
    }
}
