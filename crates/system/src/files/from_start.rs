//! Reading of files whose descriptors others may have, too.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Reads a file from its beginning. Others may have the same descriptor, so its position is not used. Its
/// size is not asked either: a process may be forbidden to.
#[derive(Debug)]
pub struct FromStart {
    file: File,
    at: u64,
}

impl FromStart {
    /// Begins to read a file.
    pub fn of(file: File) -> FromStart {
        FromStart { file, at: 0 }
    }
}

impl Read for FromStart {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(bytes, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
