//! A file that functions append lines to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::export_queue::ExportError;

/// A file to append to, or the standard error output of the daemon.
///
/// A file that was moved or removed meanwhile, for instance by `logrotate`, is created again.
pub(crate) struct LogFile {
    path: Option<PathBuf>,
    file: Option<File>,
}

impl LogFile {
    /// The file is opened with the first line.
    pub fn new(path: Option<PathBuf>) -> Self {
        LogFile { path, file: None }
    }

    /// Appends whole lines.
    ///
    /// # Errors
    /// The file cannot be written. Some of the text may have been written.
    pub fn append(&mut self, text: &str) -> Result<(), ExportError> {
        let Some(path) = &self.path else {
            let written = io::stderr().write_all(text.as_bytes());
            return written.map_err(|error| ExportError::Write {
                target: "stderr".to_owned(),
                error: error.to_string(),
            });
        };
        let written = (|| {
            let there = path.metadata().map(|found| (found.dev(), found.ino())).ok();
            let ours = self.file.as_ref().and_then(|file| file.metadata().ok());
            if there.is_none() || there != ours.map(|ours| (ours.dev(), ours.ino())) {
                self.file = None;
            }
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(OpenOptions::new().create(true).append(true).open(path)?),
            };
            file.write_all(text.as_bytes())
        })();
        let target = || path.display().to_string();
        written.map_err(|error| ExportError::Write { target: target(), error: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("x.log"), folder.path().join("x.log.1"));
        std::fs::write(&path, "old\n").expect("written");
        let mut lines = LogFile::new(Some(path.clone()));
        assert_eq!((lines.append("a\n"), lines.append("b\n")), (Ok(()), Ok(())));
        std::fs::rename(&path, &moved).expect("moved");
        assert_eq!(lines.append("c\n"), Ok(()));
        let text = |path| std::fs::read_to_string(path).expect("text");
        assert_eq!((text(&moved), text(&path)), ("old\na\nb\n".to_string(), "c\n".to_string()));
    }

    #[test]
    fn what_cannot_be_written_is_said() {
        let said = LogFile::new(Some("/nowhere/x.log".into()))
            .append("a\n")
            .expect_err("no such folder")
            .to_string();
        assert!(said.starts_with("cannot write to /nowhere/x.log: "), "{said}");
    }
}
