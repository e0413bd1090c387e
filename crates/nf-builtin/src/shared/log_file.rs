//! A file that functions append lines to.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use mmb_nf::{FileAccess, FileError};
use mmb_system::log;

use super::export_queue::ExportError;

/// A file to append to, or the standard error output of the daemon.
///
/// The file is opened for each append, so that a file that was moved or removed meanwhile, for instance by
/// `logrotate`, is created again. That is a few system calls every tenth of a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogFile(Option<(PathBuf, Arc<FileAccess>)>);

impl PartialEq for LogFile {
    fn eq(&self, other: &LogFile) -> bool {
        self.path() == other.path()
    }
}

impl Eq for LogFile {}

impl LogFile {
    /// A file.
    ///
    /// # Errors
    /// Functions may not name this file.
    pub fn at(path: &str, files: &Arc<FileAccess>) -> Result<Self, FileError> {
        let path = PathBuf::from(path);
        files.check(&path)?;
        Ok(LogFile(Some((path, files.clone()))))
    }

    /// The path of the file; none for the standard error output.
    pub fn path(&self) -> Option<&PathBuf> {
        self.0.as_ref().map(|(path, _)| path)
    }

    /// Appends whole lines.
    ///
    /// # Errors
    /// The file cannot be written. Some of the text may have been written.
    pub fn append(&self, text: &str) -> Result<(), ExportError> {
        let Some((path, files)) = &self.0 else {
            log::error(text);
            return Ok(());
        };
        let mut file = files.open_log(path).map_err(|error| ExportError::File(error.to_string()))?;
        let target = || path.display().to_string();
        file.write_all(text.as_bytes())
            .map_err(|error| ExportError::Write { target: target(), error: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_file_is_created_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("x.log"), folder.path().join("x.log.1"));
        std::fs::write(&path, "old\n").expect("written");
        let lines = LogFile::at(path.to_str().expect("a path"), &Arc::default()).expect("granted");
        assert_eq!((lines.append("a\n"), lines.append("b\n")), (Ok(()), Ok(())));
        std::fs::rename(&path, &moved).expect("moved");
        assert_eq!(lines.append("c\n"), Ok(()));
        let text = |path| std::fs::read_to_string(path).expect("text");
        assert_eq!((text(&moved), text(&path)), ("old\na\nb\n".to_string(), "c\n".to_string()));
    }

    #[test]
    fn write_errors_are_reported() {
        let lines = LogFile::at("/nowhere/x.log", &Arc::default()).expect("granted");
        let said = lines.append("a\n").expect_err("no such folder").to_string();
        assert!(said.starts_with("cannot create /nowhere/x.log: "), "{said}");
    }
}
