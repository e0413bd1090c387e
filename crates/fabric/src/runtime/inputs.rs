//! The files that a function reads in its process.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mmb_nf::FileAccess;

/// The files that the engine has passed. No call of the process opens others.
#[derive(Clone, Default)]
pub struct Inputs(Arc<Mutex<HashMap<PathBuf, OwnedFd>>>);

impl Inputs {
    /// Puts files in the place of those with the same paths.
    pub fn set(&self, paths: Vec<PathBuf>, files: impl Iterator<Item = OwnedFd>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(paths.into_iter().zip(files));
    }

    /// Returns the access of the function to them.
    pub fn access(&self) -> Arc<FileAccess> {
        let files = self.0.clone();
        Arc::new(FileAccess::from_opener(move |path| {
            let files = files.lock().unwrap_or_else(PoisonError::into_inner);
            let file = files.get(path).ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
            Ok(File::from(rustix::io::dup(file)?))
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn files_are_those_that_were_passed_last() {
        let file = |text: &str| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            OwnedFd::from(file)
        };
        let inputs = Inputs::default();
        let access = inputs.access();
        let read = |path: &str| {
            let (file, mut bytes) = (access.open_input(Path::new(path)).ok()?, [0; 3]);
            file.read_exact_at(&mut bytes, 0).unwrap();
            Some(bytes)
        };
        inputs.set(vec!["a".into(), "b".into()], [file("one"), file("two")].into_iter());
        assert_eq!((read("a"), read("a"), read("b")), (Some(*b"one"), Some(*b"one"), Some(*b"two")));
        inputs.set(vec!["a".into()], [file("new")].into_iter());
        assert_eq!((read("a"), read("b"), read("/etc/passwd")), (Some(*b"new"), Some(*b"two"), None));
    }
}
