//! Digests that are known.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::shared::input_file::read_text;
use mmb_nf::{ArgError, FileAccess};

/// Most bytes of a file.
const MOST_BYTES: u64 = 256 << 20;

/// A set of digests.
pub(super) struct KnownDigests(HashSet<Box<[u8]>>);

/// A file of digests, and the set that was read last.
pub(super) struct KnownFile {
    path: String,
    files: Arc<FileAccess>,
    /// Bytes of a digest.
    len: usize,
    known: ArcSwap<KnownDigests>,
}

impl KnownFile {
    /// Reads a file with a digest on each line, as hexadecimal digits. What follows behind a blank is not
    /// read, so that the output of `sha256sum` can be used. Lines that begin with `#` are comments.
    pub fn new(path: &str, files: &Arc<FileAccess>, len: usize) -> Result<KnownFile, ArgError> {
        let known = ArcSwap::from_pointee(KnownDigests::read(path, files, len)?);
        Ok(KnownFile { path: path.to_owned(), files: files.clone(), len, known })
    }

    /// Reads the file again. With an error, the set stays.
    pub fn reload(&self) -> Result<(), ArgError> {
        self.known.store(Arc::new(KnownDigests::read(&self.path, &self.files, self.len)?));
        Ok(())
    }

    pub fn contains(&self, digest: &[u8]) -> bool {
        self.known.load().0.contains(digest)
    }
}

impl KnownDigests {
    fn read(path: &str, files: &Arc<FileAccess>, len: usize) -> Result<KnownDigests, ArgError> {
        let text = read_text(path, files, MOST_BYTES)?;
        Self::parse(&text, len).map_err(|line| {
            format!("line {line} of `{path}` does not begin with {} hexadecimal digits", 2 * len).into()
        })
    }

    /// Parses the text of a file. The error is the number of the line that is wrong.
    pub fn parse(text: &str, len: usize) -> Result<KnownDigests, usize> {
        let mut known = HashSet::new();
        for (n, line) in text.lines().enumerate() {
            let Some(word) = line.split_whitespace().next().filter(|word| !word.starts_with('#')) else {
                continue;
            };
            known.insert(bytes(word).filter(|bytes| bytes.len() == len).ok_or(n + 1)?);
        }
        Ok(KnownDigests(known))
    }
}

/// Returns the bytes of hexadecimal digits.
fn bytes(word: &str) -> Option<Box<[u8]>> {
    let digit = |&digit: &u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let pairs = word.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}
