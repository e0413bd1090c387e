//! The arguments of `sni`.

use std::sync::Arc;

use super::USAGE;
use super::names::NameList;
use crate::shared::label::{REST, label};
use mmb_nf::{ArgError, FileAccess, Setup};

/// What becomes of connections.
pub(super) struct Config {
    /// Names that are allowed, or refused. None: all are allowed.
    listed: Option<Listed>,
    chosen: Vec<Chosen>,
    /// The names of the outputs; the last is [`REST`]. Empty: there are none.
    pub outputs: Vec<String>,
    allows_no_name: bool,
    pub passes_errors: bool,
    pub resets: bool,
}

/// The number of an output, and its names.
type Chosen = (u8, NameList);

struct Listed {
    names: NameList,
    /// What becomes of connections with a name of the list, and with another one.
    are_allowed: bool,
}

/// The arguments in front of names.
#[derive(Default)]
struct Options {
    passes_errors: bool,
    resets: bool,
    no_name: Option<bool>,
}

impl Options {
    /// Takes the options in front of other words.
    fn take<'a, 'w>(mut words: &'a [&'w str]) -> Result<(Options, &'a [&'w str]), ArgError> {
        let mut options = Options::default();
        loop {
            words = match words {
                ["errors", "reject", rest @ ..] => rest,
                ["errors", "pass", rest @ ..] => {
                    options.passes_errors = true;
                    rest
                }
                ["errors", ..] => return Err(ArgError::missing("errors", "`reject` or `pass`")),
                ["no-name", word @ ("allow" | "deny"), rest @ ..] => {
                    options.no_name = Some(*word == "allow");
                    rest
                }
                ["no-name", ..] => return Err(ArgError::missing("no-name", "`allow` or `deny`")),
                ["reset", rest @ ..] => {
                    options.resets = true;
                    rest
                }
                _ => return Ok((options, words)),
            };
        }
    }
}

/// Returns the number of words in front of the next label. What follows `file` is no label.
fn names_in(words: &[&str]) -> usize {
    let is_path = |at: usize| at.checked_sub(1).is_some_and(|before| words[before] == "file");
    (0..words.len()).find(|&at| label(words[at]).is_some() && !is_path(at)).unwrap_or(words.len())
}

impl Config {
    /// Reads the arguments, and the files that they name.
    pub fn new(setup: &Setup<'_>) -> Result<Config, ArgError> {
        let (Options { passes_errors, resets, no_name }, words) = Options::take(setup.args)?;
        let (listed, labels) = match words {
            [] => return Err(ArgError::missing("sni", "`allow`, `deny` or a label, and names")),
            [word @ ("allow" | "deny"), rest @ ..] => {
                let (names, labels) = rest.split_at(names_in(rest));
                let names = NameList::new(names, setup.files)?;
                (Some(Listed { names, are_allowed: *word == "allow" }), labels)
            }
            [word, ..] if label(word).is_none() => {
                return Err(format!("unknown argument `{word}`: `sni` takes {USAGE}").into());
            }
            labels => (None, labels),
        };
        let (chosen, outputs) = outputs(labels, setup.files)?;
        let allows_others = listed.as_ref().is_none_or(|listed| !listed.are_allowed);
        let allows_no_name = no_name.unwrap_or(allows_others);
        Ok(Config { listed, chosen, outputs, allows_no_name, passes_errors, resets })
    }

    /// Whether connections with a name, or without one, are allowed.
    pub fn allows(&self, name: Option<&[u8]>) -> bool {
        let is_allowed = |listed: &Listed, name| listed.names.contains(name) == listed.are_allowed;
        match (name, &self.listed) {
            (None, _) => self.allows_no_name,
            (Some(name), Some(listed)) => is_allowed(listed, name),
            (Some(_), None) => true,
        }
    }

    /// Returns the output of connections with a name, or without one.
    pub fn output(&self, name: Option<&[u8]>) -> u8 {
        let has = |(_, names): &&Chosen| name.is_some_and(|name| names.contains(name));
        self.chosen.iter().find(has).map_or(self.rest(), |(output, _)| *output)
    }

    /// Returns the output of connections for which no name chooses another one.
    pub fn rest(&self) -> u8 {
        self.outputs.len().saturating_sub(1) as u8
    }

    /// Reads the files again. With an error, all names stay.
    pub fn reload(&self) -> Result<(), ArgError> {
        let listed = self.listed.iter().map(|listed| &listed.names);
        let lists: Vec<_> = listed.chain(self.chosen.iter().map(|(_, names)| names)).collect();
        if !lists.iter().any(|list| list.has_file()) {
            return Err("there is no file of names".into());
        }
        let read: Result<Vec<_>, _> = lists.iter().map(|list| list.read_again()).collect();
        lists.iter().zip(read?).for_each(|(list, names)| list.replace(names));
        Ok(())
    }
}

/// Reads labels with names. Returns the names with the numbers of their outputs, and the outputs.
fn outputs(mut words: &[&str], files: &Arc<FileAccess>) -> Result<(Vec<Chosen>, Vec<String>), ArgError> {
    let (mut chosen, mut outputs) = (Vec::new(), Vec::<String>::new());
    while let [first, rest @ ..] = words {
        let name = label(first).unwrap_or(first);
        if name == REST || name == "else" {
            return Err(
                format!("`{first}` needs no names: what no other label has leaves by `{REST}`").into()
            );
        }
        let at = outputs.iter().position(|known| known == name).unwrap_or(outputs.len());
        if at == outputs.len() {
            outputs.push(name.to_owned());
        }
        let (names, others) = rest.split_at(names_in(rest));
        if names.is_empty() {
            return Err(ArgError::missing(first, "a name: `video: *.video.example`"));
        }
        // There are at most 64 outputs.
        chosen.push((at as u8, NameList::new(names, files)?));
        words = others;
    }
    if !outputs.is_empty() {
        outputs.push(REST.to_owned());
    }
    Ok((chosen, outputs))
}
