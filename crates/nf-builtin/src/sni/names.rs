//! A list of server names.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::shared::input_file::read_text;
use crate::shared::wildcard::matches;
use mmb_nf::{ArgError, FileAccess};

/// Most bytes of a file.
const MOST_BYTES: u64 = 64 << 20;
/// Most patterns that are not one of the two usual forms.
const MOST_PATTERNS: usize = 256;
/// Most bytes of a name (RFC 1035, 2.3.4).
const MOST_NAME: usize = 255;

/// Names and patterns, in lower case.
#[derive(Debug, Default)]
pub(super) struct Names {
    exact: HashSet<Box<[u8]>>,
    /// The part behind `*.`.
    below: HashSet<Box<[u8]>>,
    /// With `*` elsewhere.
    patterns: Vec<Box<[u8]>>,
}

/// The names of the arguments, and of files that can be read again.
#[derive(Debug)]
pub(super) struct NameList {
    words: Vec<String>,
    files: Arc<FileAccess>,
    names: ArcSwap<Names>,
}

impl NameList {
    /// Reads names, and `file FILE`.
    pub fn new(words: &[&str], files: &Arc<FileAccess>) -> Result<NameList, ArgError> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let names = ArcSwap::from_pointee(Names::read(&words, files)?);
        Ok(NameList { words, files: files.clone(), names })
    }

    /// Whether some of the names are in files.
    pub fn has_file(&self) -> bool {
        self.words.iter().any(|word| word == "file")
    }

    /// Reads the files again. The names stay until [`NameList::replace`].
    pub fn read_again(&self) -> Result<Names, ArgError> {
        Names::read(&self.words, &self.files)
    }

    pub fn replace(&self, names: Names) {
        self.names.store(Arc::new(names));
    }

    /// Whether a name is in the list.
    pub fn contains(&self, name: &[u8]) -> bool {
        let mut lower = [0; MOST_NAME];
        let Some(lower) = lower.get_mut(..name.len()) else { return false };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.names.load().contains(lower)
    }
}

impl Names {
    fn read(words: &[String], files: &Arc<FileAccess>) -> Result<Names, ArgError> {
        let mut names = Names::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word != "file" {
                names.add(word).map_err(ArgError::from)?;
                continue;
            }
            let path = words.next().ok_or_else(|| ArgError::missing("file", "a path"))?;
            for (n, line) in read_text(path, files, MOST_BYTES)?.lines().enumerate() {
                let name = line.split('#').next().unwrap_or_default().trim();
                if !name.is_empty() {
                    names.add(name).map_err(|error| format!("line {} of `{path}`: {error}", n + 1))?;
                }
            }
        }
        if names.exact.is_empty() && names.below.is_empty() && names.patterns.is_empty() {
            return Err(ArgError::missing("sni", "a name: `deny *.ads.example`"));
        }
        Ok(names)
    }

    fn add(&mut self, name: &str) -> Result<(), String> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte);
        if name.len() > MOST_NAME || !name.bytes().all(is_part) {
            return Err(format!(
                "invalid name `{name}`: letters, digits, `-`, `_`, dots and `*` are accepted; other letters are written as `xn--…`"
            ));
        }
        let lower: Box<[u8]> = name.to_ascii_lowercase().into_bytes().into();
        match lower.strip_prefix(b"*.") {
            _ if !lower.contains(&b'*') => drop(self.exact.insert(lower)),
            Some(below) if !below.contains(&b'*') => drop(self.below.insert(below.into())),
            _ if self.patterns.len() == MOST_PATTERNS => {
                return Err(format!(
                    "more than {MOST_PATTERNS} patterns have `*` elsewhere than in `*.NAME`"
                ));
            }
            _ => self.patterns.push(lower),
        }
        Ok(())
    }

    fn contains(&self, name: &[u8]) -> bool {
        let mut dots = (0..name.len()).filter(|&at| name[at] == b'.');
        self.exact.contains(name)
            || dots.any(|at| self.below.contains(&name[at + 1..]))
            || self.patterns.iter().any(|pattern| matches(pattern, name, false))
    }
}
