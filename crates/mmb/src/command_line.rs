//! From the arguments of the process to the command: lines in quotes, abbreviations, and errors that know the
//! words of other systems.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command, CommandFactory, FromArgMatches};
use mmb_lang::foreign;

use crate::cli::{Cli, LINES, Line, Options};
use crate::failure::{Failure, USAGE};
use crate::target;

/// Commands that cannot be abbreviated, beside those of the language: they change much at once.
const WHOLE: [&str; 2] = ["apply", "run"];

/// Reads the arguments of the process. Help, and errors that clap describes best, are printed here and end
/// the process.
///
/// # Errors
/// An abbreviation that several commands have, or a word of another system.
pub fn parse(args: Vec<OsString>) -> Result<Cli, Failure> {
    let args = split_line(args);
    if let Some(cli) = parse_line(&args) {
        return Ok(cli);
    }
    let mut command = Cli::command();
    let args = expand(args, &command)?;
    let parsed = command.try_get_matches_from_mut(&args).and_then(|found| Cli::from_arg_matches(&found));
    parsed.map_err(|error| {
        let error = error.format(&mut command);
        foreign_words(&args, &error).unwrap_or_else(|| error.exit())
    })
}

/// Reads the arguments of a command that is a line of the language. It needs one of the parsers of
/// [`Cli::command`]; to make all of them takes a quarter of the time in which a client starts. None: another
/// command, or help, or an error.
fn parse_line(args: &[OsString]) -> Option<Cli> {
    let word = args.get(command_place(args))?;
    let (name, command) = LINES.iter().find(|(name, _)| word == name)?;
    let parser = Options::command().subcommand(Line::augment_args(Command::new(*name)));
    let found = parser.try_get_matches_from(args).ok()?;
    let line = Line::from_arg_matches(found.subcommand_matches(name)?).ok()?;
    Some(Cli { options: Options::from_arg_matches(&found).ok()?, command: Some(command(line)) })
}

/// The place of the first argument that is no option.
fn command_place(args: &[OsString]) -> usize {
    let mut at = 1;
    while let Some(option) = args.get(at).filter(|a| a.as_encoded_bytes().starts_with(b"-")) {
        at += if target::WITH_VALUE.iter().any(|name| option == name) { 2 } else { 1 };
    }
    at
}

/// Splits a line that is given as one argument (`mmb 'add in a ! ip-df drop'`) into words.
fn split_line(mut args: Vec<OsString>) -> Vec<OsString> {
    let at = command_place(&args);
    let Some(line) = args.get(at).and_then(|a| a.to_str()).filter(|a| a.contains(' ')) else { return args };
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    args.splice(at..=at, words);
    args
}

/// Replaces an abbreviation of a command of `cli` by the command.
fn expand(mut args: Vec<OsString>, cli: &Command) -> Result<Vec<OsString>, Failure> {
    let at = command_place(&args);
    let Some(word) = args.get(at).and_then(|word| word.to_str()) else { return Ok(args) };
    let names = || cli.get_subcommands().filter(|command| !command.is_hide_set()).map(|c| c.get_name());
    if word.len() < mmb_lang::SHORTEST_ABBREVIATION || names().any(|name| name == word) {
        return Ok(args);
    }
    let is_whole = |name: &str| WHOLE.contains(&name) || mmb_lang::WHOLE_COMMANDS.contains(&name);
    let fits: Vec<&str> = names().filter(|name| name.starts_with(word) && !is_whole(name)).collect();
    match fits[..] {
        [] => {}
        [only] => args[at] = only.into(),
        _ => return Err(Failure::usage(format!("`{word}` is ambiguous: it can be {}", fits.join(", ")))),
    }
    Ok(args)
}

/// The error of the language in place of clap's, if it is about a word of nft, iptables or VPP.
fn foreign_words(args: &[OsString], error: &clap::Error) -> Option<Failure> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let is_first = |word: &str| args.get(1).is_some_and(|first| first == word);
    let (at, is_known) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            (command_place(args), foreign::as_command(text(ContextKind::InvalidSubcommand)?).is_some())
        }
        ErrorKind::UnknownArgument => match text(ContextKind::InvalidArg)? {
            word if is_first(word) => (1, foreign::as_command(word).is_some()),
            word => (command_place(args), foreign::in_rules(word).is_some()),
        },
        _ => return None,
    };
    let words: Option<Vec<&str>> = args.get(at..)?.iter().map(|word| word.to_str()).collect();
    let line = words.filter(|_| is_known)?.join(" ");
    let error = mmb_lang::parse_line(&line).err()?;
    Some(Failure { text: error.render(&line), status: USAGE })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn args(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_line_in_quotes_is_split() {
        let split = |words: &[&str]| split_line(args(words));
        assert_eq!(split(&["mmb", "add all drop", "--json"]), ["mmb", "add", "all", "drop", "--json"]);
        assert_eq!(split(&["mmb", "--socket", "/a b", "del 1"]), ["mmb", "--socket", "/a b", "del", "1"]);
        assert_eq!(split(&["mmb", "--remote", "a b", "del 1"]), ["mmb", "--remote", "a b", "del", "1"]);
        assert_eq!(split(&["mmb", "check", "my file"]), ["mmb", "check", "my file"]);
        assert_eq!(split(&["mmb"]), ["mmb"]);
    }

    #[test]
    fn lines_are_read_as_by_the_whole_parser() {
        for line in [
            "mmb add tcp-dport 80 ! ip-df -5 drop",
            "mmb --socket /s --json list 3 --no-pager",
            "mmb del 1 --remote https://h:1 --ca /c --cert /d --key=/k --token-file /t",
            "mmb show -- --json",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let whole = Cli::try_parse_from(&words).unwrap();
            assert_eq!(format!("{:?}", parse_line(&words).unwrap()), format!("{whole:?}"), "{line}");
        }
        for line in
            ["mmb", "mmb --help", "mmb add --help", "mmb list --frob", "mmb apply /f", "mmb sh version"]
        {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(parse_line(&words).is_none(), "{line}");
        }
        let conflict = ["mmb", "list", "--socket", "/s", "--remote", "https://h:1"];
        assert!(parse_line(&args(&conflict)).is_none());
    }

    #[test]
    fn commands_are_abbreviated_where_they_are_unique() {
        let expanded = |words: &[&str]| expand(args(words), &Cli::command()).unwrap();
        assert_eq!(expanded(&["mmb", "sh", "int"]), ["mmb", "show", "int"]);
        assert_eq!(expanded(&["mmb", "--json", "li"]), ["mmb", "--json", "list"]);
        assert_eq!(expanded(&["mmb", "add", "all", "drop"]), ["mmb", "add", "all", "drop"]);
        for word in ["fl", "cle", "app", "ru", "roll", "s", "xyz", "complet"] {
            let whole = expanded(&["mmb", word]);
            assert!(whole == ["mmb", word] || word == "complet" && whole[1] == "completion", "{whole:?}");
        }
        let error = expand(args(&["mmb", "ch", "x"]), &Cli::command()).unwrap_err();
        assert_eq!(error, Failure::usage("`ch` is ambiguous: it can be check, chain"));
    }

    #[test]
    fn words_of_other_systems_are_known() {
        let message = |words: &[&str]| parse(args(words)).unwrap_err().text;
        assert!(
            message(&["mmb", "delete", "1"])
                .ends_with("help: a rule is deleted by `del <index>` or `del <name>`")
        );
        assert!(message(&["mmb", "-A", "FORWARD"]).ends_with("by `add`: `add tcp-dport 80 drop`"));
        assert!(
            message(&["mmb", "add", "-p", "tcp", "-j", "DROP"]).contains("the protocol is `ip-proto tcp`")
        );
        assert!(message(&["mmb", "iptables", "-L"]).contains("mmb import iptables-save"));
    }
}
