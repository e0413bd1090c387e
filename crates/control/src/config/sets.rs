//! Named sets: their definitions, and elements from commands and files.
//!
//! Theory of operation. The definitions are in the configuration, the elements in its [`Policy`]. An
//! element without a deadline belongs to the configuration: it has a line in files. An element with a
//! deadline is state: it is not in files, and stays when a file is applied that has its set. Elements that
//! a set's own file lists have no lines, because the file has them.

use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use mmb_lang::{Command, NamedSet, SetElement, SetElements, SetKind, SourceSpan, Word, parse_element};
use mmb_policy::{ElementInfo, Policy, PolicySet, SetTable, unknown_set};

use super::Config;
use crate::error::{CommandError, RefusalKind};

/// Most elements of a set.
const MAX_ELEMENTS: usize = 1 << 20;
/// Most sets.
const MAX_SETS: usize = 256;
/// Longest file with elements in bytes.
const MAX_FILE: u64 = 128 << 20;
/// Columns of a CSV file that have the elements, by their names in the first line.
const COLUMNS: [&str; 5] = ["network", "prefix", "cidr", "address", "ip"];

/// Milliseconds since the start of the process: the clock of deadlines.
pub(crate) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Config {
    /// The definitions of the sets, in the order in which they were added.
    pub fn sets(&self) -> &[NamedSet] {
        &self.sets
    }

    /// The definition of a set.
    pub fn set(&self, name: &str) -> Option<&NamedSet> {
        self.sets.iter().find(|set| *set.name.text == *name)
    }

    /// Adds a set with the elements of its file.
    ///
    /// # Errors
    /// The name is in use, or the file cannot be read.
    pub fn add_set(&mut self, set: &NamedSet) -> Result<(), CommandError> {
        let name = &set.name;
        if self.set(name).is_some() {
            let message = format!("there is a set `{}` already", &**name);
            return Err(
                CommandError::conflict(message, name.span).help(format!("`set del {}` first", &**name))
            );
        }
        if self.sets.len() >= MAX_SETS {
            return Err(CommandError::conflict(format!("there are {MAX_SETS} sets already"), name.span));
        }
        let elements = match &set.file {
            Some(file) => self.read_elements(set.kind, file)?,
            None => Vec::new(),
        };
        let policy = self.policy_mut();
        policy.define_set(name, set.kind);
        let info = ElementInfo { from_file: true, ..ElementInfo::default() };
        policy.add_elements(name, elements.into_iter().map(|element| (element, info.clone())));
        Arc::make_mut(&mut self.sets).push(set.clone());
        Ok(())
    }

    /// Deletes a set that no rule refers to.
    ///
    /// # Errors
    /// There is no such set, or a rule refers to it.
    pub fn delete_set(&mut self, name: &Word) -> Result<(), CommandError> {
        self.known_set(name)?;
        if let Some(index) = self.policy().rules_with_set(name).next() {
            let message = format!("rule {index} refers to the set `{}`", &**name);
            return Err(CommandError::conflict(message, name.span).help(format!("`del {index}` first")));
        }
        self.policy_mut().remove_set(name);
        Arc::make_mut(&mut self.sets).retain(|set| *set.name.text != *name.text);
        Ok(())
    }

    /// The definition of the set that a command names.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn known_set(&self, name: &Word) -> Result<&NamedSet, CommandError> {
        let unknown = || CommandError { kind: RefusalKind::NotFound, diagnostic: unknown_set(name) };
        self.set(name).ok_or_else(unknown)
    }

    /// Checks that elements can be in a set.
    fn check_elements(&self, name: &Word, elements: &[SetElement]) -> Result<&NamedSet, CommandError> {
        let set = self.known_set(name)?;
        if let Some(other) = elements.iter().find(|element| !set.kind.accepts(element)) {
            let (kind, name) = (set.kind.word(), &*set.name.text);
            let message = format!("`{other}` cannot be in `{name}`, whose elements are of kind {kind}");
            let error = CommandError::invalid(message, SourceSpan::default());
            return Err(match (set.kind, other) {
                (SetKind::Address, SetElement::Prefix(_)) => {
                    error.help("a set of kind prefix has prefixes".to_owned())
                }
                _ => error,
            });
        }
        Ok(set)
    }

    /// Runs a command that changes the elements of a set. Returns how many are new or gone.
    ///
    /// # Errors
    /// Nothing is changed: there is no such set, or the command does not fit it.
    pub fn change_elements(&mut self, command: &Command) -> Result<usize, CommandError> {
        match command {
            Command::ElementAdd(added) => self.add_elements(added),
            Command::ElementDel { name, elements } => self.delete_elements(name, elements),
            Command::ElementFlush { name } => self.flush_set(name),
            other => Err(CommandError::invalid(format!("`{other}` changes no set"), SourceSpan::default())),
        }
    }

    /// Adds elements to a set, or gives known elements another deadline and comment. Returns how many are
    /// new.
    ///
    /// # Errors
    /// There is no such set, it has other elements, or too many.
    pub fn add_elements(&mut self, added: &SetElements) -> Result<usize, CommandError> {
        let SetElements { name, elements, timeout, comment } = added;
        let set = self.check_elements(name, elements)?;
        let deadline = timeout.or(set.timeout).map(|seconds| now() + u64::from(seconds) * 1000);
        let before = self.policy().sets().get(&*name.text).map_or(0, PolicySet::len);
        if before + elements.len() > MAX_ELEMENTS {
            let message = format!("`{}` would have more than {MAX_ELEMENTS} elements", &**name);
            return Err(CommandError::conflict(message, name.span));
        }
        let comment: Option<Arc<str>> = comment.as_deref().map(Arc::from);
        let info = ElementInfo { deadline, comment, from_file: false };
        let elements = elements.iter().map(|element| (*element, info.clone()));
        Ok(self.policy_mut().add_elements(name, elements))
    }

    /// Removes elements of a set.
    ///
    /// # Errors
    /// There is no such set, or it does not have one of them.
    pub fn delete_elements(&mut self, name: &Word, elements: &[SetElement]) -> Result<usize, CommandError> {
        self.known_set(name)?;
        let set = self.policy().sets().get(&*name.text);
        if let Some(other) = elements.iter().find(|element| set.is_none_or(|set| set.get(element).is_none()))
        {
            let message = format!("`{other}` is not in the set `{}`", &**name);
            let error = CommandError::not_found(message, SourceSpan::default());
            return Err(error.help(format!("`show set {}` lists the elements", &**name)));
        }
        Ok(self.policy_mut().del_elements(name, elements))
    }

    /// Removes all elements of a set.
    ///
    /// # Errors
    /// There is no such set.
    pub fn flush_set(&mut self, name: &Word) -> Result<usize, CommandError> {
        self.known_set(name)?;
        Ok(self.policy_mut().remove_elements(name, |_| true))
    }

    /// Removes the elements whose time is over. Returns how many there were.
    pub(crate) fn expire_elements(&mut self) -> usize {
        self.policy_mut().expire_elements(now())
    }

    /// Deletes all sets.
    pub(super) fn reset_sets(&mut self) {
        self.sets = Arc::default();
        let policy = self.policy.clone().with_sets(SetTable::new());
        self.policy = policy;
    }

    /// Adds the elements of another configuration that have a deadline, to the sets that have the same name
    /// and kind.
    pub(super) fn keep_temporary_elements(&mut self, earlier: &Policy) {
        let names: Vec<Word> = self.sets.iter().map(|set| set.name.clone()).collect();
        for name in names {
            let (Some(old), Some(new)) =
                (earlier.sets().get(&*name.text), self.policy.sets().get(&*name.text))
            else {
                continue;
            };
            if old.kind() != new.kind() {
                continue;
            }
            let kept = old.elements().filter(|(e, info)| info.deadline.is_some() && new.get(e).is_none());
            let kept: Vec<_> = kept.map(|(element, info)| (*element, info.clone())).collect();
            self.policy_mut().add_elements(&name, kept);
        }
    }

    fn read_elements(&self, kind: SetKind, file: &str) -> Result<Vec<SetElement>, CommandError> {
        let failed = |message: String| CommandError::failed(message, SourceSpan::default());
        let (path, files) = (Path::new(file), &self.platform().files);
        files.check(path).map_err(|error| failed(error.to_string()))?;
        let opened = files.open_input(path).map_err(|error| failed(error.to_string()))?;
        let mut text = String::new();
        let read = opened.take(MAX_FILE + 1).read_to_string(&mut text);
        read.map_err(|error| failed(format!("cannot read {file}: {error}")))?;
        if text.len() as u64 > MAX_FILE {
            return Err(failed(format!("{file} has more than {} MiB", MAX_FILE >> 20)));
        }
        let elements = elements_of_file(&text, kind).map_err(|(line, why)| {
            CommandError::invalid(format!("{file}, line {line}: {why}"), SourceSpan::default())
        })?;
        if elements.len() > MAX_ELEMENTS {
            return Err(failed(format!("{file} has more than {MAX_ELEMENTS} elements")));
        }
        Ok(elements)
    }
}

/// The elements of a file: one each line, with comments after `#` or `;`; or a CSV file with a column named
/// in [`COLUMNS`] in its first line, or its elements in the first column.
///
/// # Errors
/// The number of the first line that is wrong, and why.
pub(crate) fn elements_of_file(text: &str, kind: SetKind) -> Result<Vec<SetElement>, (usize, String)> {
    let mut elements = Vec::new();
    let mut column = 0;
    let mut is_first = true;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if std::mem::take(&mut is_first)
            && let Some(at) = header_column(line)
        {
            column = at;
            continue;
        }
        let cell = line.split(',').nth(column).map(unquoted).unwrap_or_default();
        let element = parse_element(cell).map_err(|error| (number, error.message))?;
        if !kind.accepts(&element) {
            return Err((number, format!("`{element}` is not of kind {}", kind.word())));
        }
        elements.push(element);
    }
    Ok(elements)
}

fn unquoted(cell: &str) -> &str {
    cell.trim().trim_matches('"').trim()
}

/// The column with the elements, if the line has the names of columns.
fn header_column(line: &str) -> Option<usize> {
    let names: Vec<String> = line.split(',').map(|cell| unquoted(cell).to_ascii_lowercase()).collect();
    COLUMNS.iter().find_map(|wanted| names.iter().position(|name| name == wanted))
}

/// The elements that have lines in a file.
pub(crate) fn lasting(set: &PolicySet) -> impl Iterator<Item = (&SetElement, &ElementInfo)> {
    set.elements().filter(|(_, info)| info.deadline.is_none() && !info.from_file)
}

/// The line that adds an element.
pub(crate) fn element_line(name: &str, element: &SetElement, info: &ElementInfo) -> String {
    element_line_with(name, element, info, None)
}

/// The line that adds an element, for a time in seconds.
fn element_line_with(name: &str, element: &SetElement, info: &ElementInfo, timeout: Option<u32>) -> String {
    Command::ElementAdd(SetElements {
        name: name.into(),
        elements: vec![*element],
        timeout,
        comment: info.comment.as_deref().map(Box::from),
    })
    .to_string()
}

/// The lines that add the elements with a time, with the time that is left.
pub(crate) fn temporary_lines(table: &SetTable) -> impl Iterator<Item = String> {
    let now = now();
    table.iter().flat_map(move |(name, set)| {
        let left = move |info: &ElementInfo| {
            let left = info.deadline?.checked_sub(now)?.div_ceil(1000);
            u32::try_from(left).ok().filter(|seconds| *seconds > 0)
        };
        set.elements().filter_map(move |(element, info)| {
            Some(element_line_with(name, element, info, Some(left(info)?)))
        })
    })
}

/// The lines of the elements in `table` that `other` does not have with the same comment.
pub(crate) fn lines_missing_in<'a>(
    table: &'a SetTable,
    other: &'a SetTable,
) -> impl Iterator<Item = String> + 'a {
    let is_same = move |name: &str, set: &PolicySet| other.get(name).is_some_and(|other| other.is_same(set));
    table.iter().filter(move |(name, set)| !is_same(name, set)).flat_map(move |(name, set)| {
        let known = other.get(name);
        let is_known = move |element: &SetElement, info: &ElementInfo| {
            let found = known.and_then(|known| known.get(element));
            found.is_some_and(|i| i.deadline.is_none() && !i.from_file && i.comment == info.comment)
        };
        lasting(set)
            .filter(move |(element, info)| !is_known(element, info))
            .map(move |(element, info)| element_line(name, element, info))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_lists_or_csv() {
        let read = |text| {
            elements_of_file(text, SetKind::Prefix)
                .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(
            read("# list\n10.0.0.0/8\n\n2001:db8::/32 ; why\r\n").unwrap(),
            "10.0.0.0/8 2001:db8::/32"
        );
        let maxmind = "geoname_id,network,is_anycast\n1814991,1.0.1.0/24,0\n1814991,\"1.0.2.0/23\",0\n";
        assert_eq!(read(maxmind).unwrap(), "1.0.1.0/24 1.0.2.0/23");
        assert_eq!(read("\u{feff}1.0.1.0/24,AS13335,Cloudflare\n").unwrap(), "1.0.1.0/24");
        let (line, why) = read("1.0.1.0/24\n1.0.1.0/33\n").unwrap_err();
        assert_eq!(line, 2);
        assert!(why.contains("out of range"), "{why}");
        assert!(read("80\n").unwrap_err().1.contains("not of kind prefix"));
    }
}
