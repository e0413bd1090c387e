//! Completion for the shells of the system, and manual pages, from the tables of the command line and of the
//! language.
//!
//! Theory of operation. The scripts for bash, zsh and fish ask `mmb complete` for the words that can stand at
//! the cursor. Commands and options come from the command line's own table, lines of rules from the language,
//! names from the running daemon if there is one.

use std::io::{self, Write};
use std::path::Path;

use clap::{Arg, Command};
use clap_mangen::roff::{Roff, bold, roman};
use mmb_control::{Client, fields};
use mmb_lang::{Candidate, Completion, Names};

use super::assist::{KnownNames, LineHelper};
use super::known_names;
use crate::cli::UserShell;
use crate::failure::{Failure, print};

/// Exit status of `mmb complete` where the name of a file can stand.
const FILES: u8 = 3;

/// The script for a shell.
pub fn script(shell: UserShell) -> &'static str {
    match shell {
        UserShell::Bash => include_str!("scripts/mmb.bash"),
        UserShell::Zsh => include_str!("scripts/mmb.zsh"),
        UserShell::Fish => include_str!("scripts/mmb.fish"),
    }
}

/// Prints the words that can stand in place of the last of `words`, each with its help behind a tab.
///
/// # Errors
/// The name of a file can stand there: the exit status is 3.
pub fn complete(table: &Command, words: &[String], client: Option<Client>) -> Result<(), Failure> {
    let known = || client.map_or_else(KnownNames::default, |mut client| known_names(&mut client));
    match candidates(table, words, known) {
        None => Err(Failure { text: String::new(), status: FILES }),
        Some(found) => {
            let line = |c: &Candidate| format!("{}\t{}\n", c.text, c.help.replace(['\t', '\n'], " "));
            print(&found.iter().map(line).collect::<String>())
        }
    }
}

/// The candidates; none where the name of a file can stand.
fn candidates(
    table: &Command,
    words: &[String],
    known: impl FnOnce() -> KnownNames,
) -> Option<Vec<Candidate>> {
    let (typed, before) = words.split_last().map_or(("", &[][..]), |(last, rest)| (last.as_str(), rest));
    let mut command = table;
    let mut value_of: Option<&Arg> = None;
    let mut place = 0;
    for (at, word) in before.iter().enumerate() {
        if value_of.take().is_some() {
            continue;
        }
        value_of = option(command, word).filter(|arg| arg.get_action().takes_values());
        if word.starts_with('-') {
            continue;
        }
        match command.find_subcommand(word).filter(|_| place == 0) {
            Some(found) if is_line(found) => {
                let words: Vec<_> = words[at..].iter().filter(|w| !w.starts_with("--")).cloned().collect();
                return Some(match typed.starts_with('-') {
                    true => options(found, typed),
                    false => of_line(&words, known()),
                });
            }
            Some(found) => command = found,
            None => place += 1,
        }
    }
    if let Some(arg) = value_of {
        return values(arg, typed);
    }
    if typed.starts_with('-') {
        return Some(options(command, typed));
    }
    if command.has_subcommands() {
        let visible = command.get_subcommands().filter(|c| !c.is_hide_set());
        return Some(starting(typed, visible.map(|c| (c.get_name().to_owned(), about(c.get_about())))));
    }
    values(command.get_positionals().nth(place)?, typed)
}

/// Whether the words of a command are a line of the language.
fn is_line(command: &Command) -> bool {
    mmb_lang::complete("", 0, &Names::default()).candidates.iter().any(|c| c.text == command.get_name())
}

/// The option that a word names.
fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let long = word.strip_prefix("--");
    let short = word.strip_prefix('-').and_then(|rest| rest.chars().next());
    let is_it = |arg: &&Arg| match long {
        Some(long) => arg.get_long() == Some(long),
        None => short.is_some() && arg.get_short() == short,
    };
    command.get_arguments().find(is_it)
}

fn options(command: &Command, typed: &str) -> Vec<Candidate> {
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let named = visible.filter_map(|arg| Some((format!("--{}", arg.get_long()?), about(arg.get_help()))));
    starting(typed, named)
}

/// The values of an argument; none if they are not a list.
fn values(arg: &Arg, typed: &str) -> Option<Vec<Candidate>> {
    let possible = arg.get_possible_values();
    if possible.is_empty() {
        return None;
    }
    Some(starting(typed, possible.iter().map(|v| (v.get_name().to_owned(), about(v.get_help())))))
}

/// The words of a line, of which the last one is typed.
fn of_line(words: &[String], known: KnownNames) -> Vec<Candidate> {
    let line = words.join(" ");
    let begin = line.len() - words.last().map_or(0, String::len);
    let Completion { start, candidates } = LineHelper::new(known).candidates(&line, line.len());
    // A candidate replaces a part of the word, as in `{80,ht`.
    let kept = line.get(begin..start).unwrap_or_default();
    candidates.into_iter().map(|c| Candidate { text: format!("{kept}{}", c.text), ..c }).collect()
}

fn starting(typed: &str, all: impl Iterator<Item = (String, String)>) -> Vec<Candidate> {
    all.filter(|(text, _)| text.starts_with(typed)).map(|(text, help)| Candidate { text, help }).collect()
}

fn about(help: Option<&clap::builder::StyledStr>) -> String {
    help.map(ToString::to_string).unwrap_or_default()
}

/// Writes the manual pages to a directory: one for the program, one for each command, and one for rules.
///
/// # Errors
/// A file cannot be written.
pub fn manual(table: Command, directory: &Path) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::new(format!("cannot write to {}: {e}", directory.display()));
    clap_mangen::generate_to(table, directory).map_err(failed)?;
    let mut page = std::fs::File::create(directory.join("mmb-rules.7")).map_err(failed)?;
    rules_page().to_writer(&mut page).and_then(|()| page.flush()).map_err(failed)
}

/// The page of the language: commands, targets, settings and fields.
fn rules_page() -> Roff {
    let mut page = Roff::new();
    page.control("TH", ["mmb-rules", "7", "", concat!("mmb ", env!("CARGO_PKG_VERSION")), "mmb"]);
    page.control("SH", ["NAME"]).text([roman("mmb-rules - lines of rules and configuration files of mmb")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "A configuration file has one command on each line; the same words follow mmb(1) on a command line. \
         Text behind # is a comment. A rule has matches and targets. If all of its matches hold, all of its \
         targets apply. A match is FIELD VALUE, FIELD CONDITION VALUE, FIELD alone, or all; a ! in front \
         negates it. Rules have no order: block beats accept, and accept beats drop.",
    )]);
    let tables = [
        ("COMMANDS", ""),
        ("CONDITIONS", "add ip-ttl "),
        ("TARGETS", "add-stateful all "),
        ("INTERFACES", "interface add x "),
        ("SETTINGS", "set "),
        ("TIMEOUTS", "set timeout "),
        ("SHOW", "show "),
    ];
    for (head, line) in tables {
        page.control("SH", [head]);
        let words = mmb_lang::complete(line, line.len(), &Names::default()).candidates;
        for word in words.iter().filter(|word| mmb_lang::field(&word.text).is_none()) {
            page.control("TP", []).text([bold(word.text.as_str())]).text([roman(word.help.as_str())]);
        }
    }
    page.control("SH", ["FIELDS"]);
    for field in fields().fields {
        page.control("TP", []).text([bold(field.name.as_str()), roman(format!(" ({})", field.protocol))]);
        page.text([roman(format!("{} Example: {}", field.help, field.example))]);
    }
    page.control("SH", ["SEE ALSO"]).text([bold("mmb"), roman("(1)")]);
    page
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn texts(words: &[&str]) -> Option<Vec<String>> {
        let known = || KnownNames { interfaces: vec!["lan".into(), "wan".into()], ..KnownNames::default() };
        let words: Vec<_> = words.iter().map(|w| w.to_string()).collect();
        let found = candidates(&Cli::command(), &words, known)?;
        Some(found.into_iter().map(|c| c.text).collect())
    }

    #[test]
    fn commands_options_and_lines_are_completed() {
        let some = |words: &[&str]| texts(words).unwrap();
        assert_eq!(some(&["appl"]), ["apply"]);
        assert_eq!(some(&["--json", "hist"]), ["history"]);
        assert_eq!(some(&["--socket", "/s", "hist"]), ["history"]);
        assert_eq!(some(&["run", "--met"]), ["--metrics"]);
        assert_eq!(some(&["--no-"]), ["--no-pager"]);
        assert_eq!(some(&["--no-pager", "hist"]), ["history"]);
        assert_eq!(some(&["add", "tcp-dport", "htt"]), ["http", "https", "http-alt"]);
        assert_eq!(some(&["add", "tcp-dport", "{80,http"]), ["{80,http", "{80,https", "{80,http-alt"]);
        assert_eq!(some(&["add", "--json", "in", "w"]), ["wan"]);
        assert_eq!(some(&["bench", "--mode", ""]), ["wire", "routed"]);
        assert_eq!(some(&["completion", "z"]), ["zsh"]);
        assert_eq!(some(&["import", "nf"]), ["nft"]);
        assert!(!some(&[""]).contains(&"complete".to_owned()), "hidden");
        for words in
            [&["check", ""][..], &["run", "-c", ""], &["run", "--config", "x"], &["import", "nft", ""]]
        {
            assert_eq!(texts(words), None, "{words:?}: a file");
        }
    }

    #[test]
    fn there_is_a_manual_page_for_each_command_and_for_rules() {
        let directory = tempfile::tempdir().unwrap();
        manual(Cli::command(), directory.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(page("mmb.1").contains("no\\-pager"));
        assert!(page("mmb-run.1").contains("metrics") && page("mmb.1").contains("mmb\\-doctor(1)"));
        let rules = page("mmb-rules.7");
        for word in ["tcp\\-dport", "reject", "tcp\\-pickup", "udp\\-replied", "af\\-xdp"] {
            assert!(rules.contains(&format!("\\fB{word}\\fR")), "{word} in {rules}");
        }
        assert!(!directory.path().join("mmb-complete.1").exists());
    }
}
