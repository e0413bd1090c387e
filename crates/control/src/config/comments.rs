//! The `#` comments of configuration files.
//!
//! Theory of operation. A configuration is printed from its parts, in an order of its own. So a comment is
//! kept with the line that it stands above or behind, and is found by the text of that line when the line is
//! printed. It goes with the line. A line that is printed as nothing (a setting with its default) leaves its
//! comments to the next one. Comments behind the last line stay at the end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mmb_lang::{Command, FileItem, line_comment};

/// The comments of a configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Comments {
    /// By the line that they belong to.
    of_lines: HashMap<String, LineComments>,
    /// Lines at the end of the file.
    last: String,
}

/// The comments of a line.
#[derive(Clone, Debug, Default)]
struct LineComments {
    /// Comments and empty lines above it, each with its end of line.
    above: String,
    /// What follows on the line.
    behind: String,
}

impl LineComments {
    /// Whether there are any.
    fn is_some(&self) -> bool {
        !self.above.is_empty() || !self.behind.is_empty()
    }

    /// The comments as lines of their own.
    fn into_lines(self) -> String {
        if self.behind.is_empty() { self.above } else { self.above + &self.behind + "\n" }
    }
}

impl Comments {
    /// Appends a line with its comments.
    pub fn push(&self, line: &str, text: &mut String) {
        let own = self.of_lines.get(line);
        text.push_str(own.map_or("", |own| &own.above));
        text.push_str(line);
        if let Some(own) = own.filter(|own| !own.behind.is_empty()) {
            text.push_str("  ");
            text.push_str(&own.behind);
        }
        text.push('\n');
    }

    /// Appends the comments at the end of the file.
    pub fn push_last(&self, text: &mut String) {
        text.push_str(&self.last);
    }
}

/// The comments of a file whose configuration is not known yet.
#[derive(Default)]
pub(super) struct FileComments {
    commands: Vec<CommentedCommand>,
    last: String,
}

/// A command with comments, or one that may get those of the command before it.
struct CommentedCommand {
    line: String,
    /// Whether it adds one element of a set that has a line in files.
    is_element: bool,
    own: LineComments,
}

impl FileComments {
    /// Reads the comments of a file with these commands.
    pub fn read(text: &[u8], commands: &[FileItem<Command>]) -> FileComments {
        let mut file = FileComments::default();
        // Fast path: files may have a million rules.
        if !text.contains(&b'#') {
            return file;
        }
        let text = String::from_utf8_lossy(text);
        let (mut above, mut may_inherit) = (String::new(), false);
        let mut commands = commands.iter().peekable();
        for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            let Some(command) = commands.next_if(|command| command.line == number) else {
                above.push_str(line.trim());
                above.push('\n');
                continue;
            };
            let mut own = LineComments::default();
            if above.contains('#') {
                std::mem::swap(&mut own.above, &mut above);
            }
            above.clear();
            own.behind.push_str(line_comment(line).unwrap_or_default());
            if may_inherit || own.is_some() {
                file.commands.push(CommentedCommand::new(&command.item, own));
                may_inherit = !matches!(command.item, Command::Add(_));
            }
        }
        if above.contains('#') {
            file.last = above;
        }
        file
    }

    /// Whether a configuration with these comments, behind one with those of `earlier`, has any.
    pub fn matter(&self, earlier: &Comments) -> bool {
        !self.commands.is_empty() || !self.last.is_empty() || !earlier.of_lines.is_empty()
    }

    /// The comments of the configuration of the file, with its lines other than those of elements. Lines that
    /// are not in the file keep the comments of `earlier`.
    pub fn of_config<'a>(
        self,
        lines: impl Iterator<Item = &'a str>,
        earlier: &Arc<Comments>,
    ) -> Arc<Comments> {
        let printed: HashSet<&str> = lines.collect();
        let kept = earlier.of_lines.iter().filter(|(line, _)| printed.contains(line.as_str()));
        let mut of_lines: HashMap<_, _> = kept.map(|(line, own)| (line.clone(), own.clone())).collect();
        let mut pending = String::new();
        for CommentedCommand { line, is_element, mut own } in self.commands {
            own.above.insert_str(0, &std::mem::take(&mut pending));
            if !is_element && !printed.contains(line.as_str()) {
                pending = own.into_lines();
            } else if own.is_some() {
                of_lines.insert(line, own);
            }
        }
        Arc::new(Comments { of_lines, last: pending + &self.last })
    }
}

impl CommentedCommand {
    fn new(command: &Command, own: LineComments) -> CommentedCommand {
        let is_element = matches!(
            command,
            Command::ElementAdd(added) if added.timeout.is_none() && added.elements.len() == 1
        );
        CommentedCommand { line: command.to_string(), is_element, own }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, file};

    /// The text of the configuration of a file.
    fn printed(text: &str) -> String {
        file::text(&file::load(text.as_bytes(), &Config::new()).unwrap())
    }

    #[test]
    fn comments_stay_with_their_lines() {
        let text = "\
# The house.

interface add lan null  # inside
interface add wan null
# There is one wire.
wire lan wan

# Nobody needs UDP.
# Not even DNS.
add ip-proto udp drop  # see the wiki
# The end.
";
        assert_eq!(printed(text), text);
        let crlf = text.replace('\n', "\r\n");
        assert_eq!(printed(&crlf), text);
    }

    #[test]
    fn lines_are_printed_in_their_own_order_with_their_comments() {
        let text = "add all drop # last\n# of the interface\ninterface add lan null\n";
        let sorted = "# of the interface\ninterface add lan null\nadd all drop  # last\n";
        assert_eq!(printed(text), sorted);
        assert_eq!(printed(sorted), sorted);
    }

    #[test]
    fn comments_of_lines_that_are_not_printed_go_to_the_next_line() {
        let text = "# the default\nset tcp-pickup on # really\nadd all drop\nset tcp-pickup on # again\n";
        assert_eq!(printed(text), "# the default\n# really\nadd all drop\n# again\n");
    }

    #[test]
    fn elements_have_comments_too() {
        let text =
            "set add bad address\n# a scanner\nset bad add 192.0.2.1\nset bad add 192.0.2.2  # another\n";
        assert_eq!(printed(text), text);
    }

    #[test]
    fn a_number_sign_in_a_text_or_a_word_is_no_comment() {
        let text = "add ip-proto udp drop comment \"no # comment\"\nadd tcp-payload contains \"#\" drop\n";
        assert_eq!(printed(text), text);
    }

    #[test]
    fn a_comment_goes_with_its_line() {
        let base =
            file::load(b"# one\nadd ip-proto udp drop\n# two\nadd ip-proto tcp drop\n", &Config::new());
        let mut config = base.unwrap();
        config.policy_mut().del(1).unwrap();
        assert_eq!(file::text(&config), "# two\nadd ip-proto tcp drop\n");
    }

    #[test]
    fn files_of_rules_keep_the_comments_of_interfaces() {
        let base =
            file::load(b"# lan\ninterface add lan null\n# udp\nadd ip-proto udp drop\n", &Config::new());
        let config = file::load(b"# tcp\nadd ip-proto tcp drop\n", &base.unwrap()).unwrap();
        assert_eq!(file::text(&config), "# lan\ninterface add lan null\n# tcp\nadd ip-proto tcp drop\n");
    }
}
