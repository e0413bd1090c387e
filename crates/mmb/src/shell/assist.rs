//! Completion, hints and help for words, from the tables of the language.

use std::borrow::Cow;

use mmb_lang::{Candidate, Command, Completion, Names, SetKind, complete};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::arguments;
use crate::failure::Failure;

/// Commands of the shell.
const SHELL_WORDS: [(&str, &str); 6] = [
    ("apply", "make a file the configuration: apply [--confirm <time>] [--allow-empty] <file>"),
    ("check", "check a file for errors: check <file>"),
    ("diff", "show the changes that apply would make: diff <file>"),
    ("save", "write the running configuration to a file, or to that of `mmb run -c`: save [<file>]"),
    ("help", "show help: help [<word>]"),
    ("exit", "leave the shell"),
];

/// Names of the configuration.
#[derive(Default)]
pub struct KnownNames {
    /// Interfaces.
    pub interfaces: Vec<String>,
    /// NAT pools.
    pub pools: Vec<String>,
    /// Domains of functions in processes.
    pub domains: Vec<String>,
    /// Service chains.
    pub chains: Vec<String>,
    /// Brokers.
    pub brokers: Vec<String>,
    /// Named sets and their kinds.
    pub sets: Vec<(String, SetKind)>,
    /// Network functions.
    pub instances: Vec<String>,
    /// Types of network functions, each with its help.
    pub types: Vec<(String, String)>,
    /// Names and indexes of rules, each with the text of its rule.
    pub rules: Vec<(String, String)>,
    /// The usage of each of these types.
    pub usages: Vec<String>,
}

/// Completion and hints for the line editor.
pub struct LineHelper {
    known: KnownNames,
}

impl LineHelper {
    /// A helper with these names.
    pub fn new(known: KnownNames) -> LineHelper {
        LineHelper { known }
    }

    /// The words that can stand at `cursor`.
    pub fn candidates(&self, line: &str, cursor: usize) -> Completion {
        let KnownNames { interfaces, pools, domains, chains, brokers, sets, instances, types, rules, .. } =
            &self.known;
        let names = Names { interfaces, pools, domains, chains, brokers, sets, instances, types, rules };
        let mut found = complete(line, cursor, &names);
        let (before, typed) = line.get(..cursor).unwrap_or(line).split_at(found.start);
        if before.trim().is_empty() {
            let own = SHELL_WORDS.iter().filter(|(word, _)| word.starts_with(typed));
            found
                .candidates
                .extend(own.map(|(word, help)| Candidate { text: (*word).into(), help: (*help).into() }));
        }
        if let Some((_, usage, last)) = self.function(before) {
            let words = arguments::candidates(usage, last).into_iter();
            found.candidates.extend(words.filter(|word| word.text.starts_with(typed)));
        }
        found
    }

    /// Returns type and usage of the function whose arguments a line gives, and the last argument.
    fn function<'a>(&'a self, before: &'a str) -> Option<(&'a str, &'a str, Option<&'a str>)> {
        let (kind, last) = arguments::type_and_argument(before)?;
        let at = self.known.types.iter().position(|(name, _)| name == kind)?;
        Some((kind, self.known.usages.get(at)?, last))
    }
}

impl Completer for LineHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Completion { start, candidates } = self.candidates(line, pos);
        let one = candidates.len() == 1;
        let pair = |c: Candidate| Pair {
            // A unique word is followed by a space.
            replacement: if one { format!("{} ", c.text) } else { c.text.clone() },
            display: c.text,
        };
        Ok((start, candidates.into_iter().map(pair).collect()))
    }
}

impl Hinter for LineHelper {
    type Hint = String;

    /// The rest of a unique word, and its meaning.
    fn hint(&self, line: &str, pos: usize, _: &Context<'_>) -> Option<String> {
        if pos < line.len() || line.trim().is_empty() || line.ends_with(char::is_whitespace) {
            return None;
        }
        let Completion { start, candidates } = self.candidates(line, pos);
        let typed = &line[start..];
        let exact = candidates.iter().find(|c| c.text == typed);
        let (rest, c) = match (exact, candidates.as_slice()) {
            (Some(c), _) => ("", c),
            (None, [c]) => (c.text.get(typed.len()..).unwrap_or_default(), c),
            _ => return None,
        };
        let help = if c.help.is_empty() { String::new() } else { format!("   {}", c.help) };
        Some(format!("{rest}{help}")).filter(|hint| !hint.is_empty())
    }
}

impl Highlighter for LineHelper {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[2m{hint}\x1b[0m"))
    }
}

impl Validator for LineHelper {}
impl Helper for LineHelper {}

/// The words that can follow a line, one per line.
pub fn candidates_text(line: &str, helper: &LineHelper) -> String {
    let Completion { start, candidates } = helper.candidates(line, line.len());
    match helper.function(&line[..start]) {
        Some((kind, "", _)) => format!("{kind} has no arguments\n"),
        Some((kind, usage, _)) => format!("{kind} {usage}\n{}", table(&candidates)),
        None if candidates.is_empty() => what_follows(line.trim()) + "\n",
        None => table(&candidates),
    }
}

/// What can follow a line where no word is known that can: a name, a number, a file or nothing.
fn what_follows(line: &str) -> String {
    if let Some((word, help)) = SHELL_WORDS.iter().find(|(word, _)| line == *word) {
        return format!("{word}: {help}");
    }
    match mmb_lang::parse_line(line) {
        // The arguments of a function that is not known.
        Ok(Some(Command::NfAdd(_))) => "nothing can follow here".to_owned(),
        Ok(_) => {
            let first = line.split_whitespace().next().unwrap_or_default();
            let usage = explain(first).map(|text| format!("; {}", text.trim_end())).unwrap_or_default();
            format!("the line is complete{usage}")
        }
        Err(error) => error.to_string(),
    }
}

fn table(candidates: &[Candidate]) -> String {
    let width = candidates.iter().map(|c| c.text.chars().count()).max().unwrap_or(0);
    candidates.iter().map(|c| format!("{:width$}  {}", c.text, c.help).trim_end().to_owned() + "\n").collect()
}

/// `help WORD`: the meaning of a field or a command.
pub fn explain(word: &str) -> Result<String, Failure> {
    if let Some(field) = mmb_lang::field(word) {
        let bits = if field.width_bits > 0 { format!(", {} bits", field.width_bits) } else { String::new() };
        return Ok(format!(
            "{} ({}{bits}): {}\nfor example: {}\n",
            field.name, field.proto, field.help, field.example
        ));
    }
    let assist = LineHelper::new(KnownNames::default());
    let prefixes = [
        "",
        "add all ",
        "show ",
        "interface ",
        "interface add x ",
        "set ",
        "set timeout ",
        "set add x ",
        "set add x address ",
        "nat ",
        "nat pool ",
        "nat pool add x 192.0.2.1 ",
        "nf ",
        "chain ",
    ];
    let mut all = prefixes.iter().flat_map(|line| assist.candidates(line, line.len()).candidates);
    match all.find(|c| c.text == word) {
        Some(c) => Ok(format!("{}: {}\n", c.text, c.help)),
        None => Err(Failure::new(format!("there is no help for `{word}`; `help` lists the commands"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assist() -> LineHelper {
        let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        LineHelper::new(KnownNames {
            interfaces: names(["lan", "wan"]),
            pools: names(["home", "office"]),
            domains: names(["tenant1", "tenant2"]),
            chains: names(["web", "mail"]),
            brokers: names(["shop", "api"]),
            sets: [("blocked", SetKind::Address), ("web", SetKind::Port)]
                .map(|(n, k)| (n.to_owned(), k))
                .to_vec(),
            instances: names(["stats", "guard"]),
            types: ["count", "police", "monitor"].map(|name| (name.to_owned(), "helps".to_owned())).to_vec(),
            rules: [("web".to_owned(), "add tcp-dport 80 accept name web".to_owned())].to_vec(),
            usages: ["[json PATH]", "RATE [per source|pair]", ""].map(str::to_owned).to_vec(),
        })
    }

    fn texts(line: &str) -> Vec<String> {
        let assist = assist();
        assist.candidates(line, line.len()).candidates.into_iter().map(|c| c.text).collect()
    }

    #[test]
    fn completes_commands_fields_and_interfaces() {
        assert!(texts("ad").contains(&"add".to_owned()));
        assert!(texts("he").contains(&"help".to_owned()));
        assert!(texts("add tcp-dp").contains(&"tcp-dport".to_owned()));
        assert_eq!(texts("add in w"), ["wan"]);
        assert_eq!(texts("wire l"), ["lan"]);
        assert_eq!(texts("del w"), ["web"]);
        assert_eq!(texts("add all drop na"), ["name"]);
        assert_eq!(texts("add-stateful all nat o"), ["office"]);
        assert_eq!(texts("add ip-saddr @"), ["@blocked"]);
        assert_eq!(texts("add tcp-dport != "), ["@web"]);
        assert_eq!(texts("set blo"), ["blocked"]);
        assert_eq!(texts("set blocked "), ["add", "del", "flush"]);
        assert_eq!(texts("set add x "), ["address", "prefix", "port", "address-port"]);
        assert_eq!(texts("set blocked add 192.0.2.1 t"), ["timeout"]);
        assert_eq!(texts("show set w"), ["web"]);
        assert!(!texts("add he").contains(&"help".to_owned()));
        assert_eq!(texts("nf add x c"), ["count"]);
        assert_eq!(texts("nf del g"), ["guard"]);
        assert_eq!(texts("chain add c stats then g"), ["guard"]);
        assert_eq!(texts("chain del m"), ["mail"]);
        assert_eq!(texts("add-stateful all chain w"), ["web"]);
    }

    #[test]
    fn arguments_of_functions_have_help() {
        assert_eq!(texts("nf add q police 1mbit p"), ["per"]);
        assert_eq!(texts("nf add q police 1mbit per s"), ["source"]);
        assert_eq!(texts("nf add q nonsense "), [""; 0]);
        let help = |line| candidates_text(line, &assist());
        assert_eq!(help("nf add q police "), "police RATE [per source|pair]\nper  source|pair\n");
        assert_eq!(help("nf add q monitor "), "monitor has no arguments\n");
        assert_eq!(help("nf add q nonsense "), "nothing can follow here\n");
    }

    /// Where a name or a number of the user's stands, there is no list of words.
    #[test]
    fn what_is_missing_is_named() {
        let help = |line| candidates_text(line, &assist());
        assert!(help("set add ").starts_with("the name of a set is missing"), "{}", help("set add "));
        assert!(help("nat forward add tcp ").contains(" is missing"), "{}", help("nat forward add tcp "));
        assert!(help("history ").starts_with("the line is complete; history: show who changed what"));
        assert!(help("save ").starts_with("save: write the running configuration"));
    }

    #[test]
    fn explains_fields_and_commands() {
        assert!(explain("tcp-dport").unwrap().starts_with("tcp-dport (TCP, 16 bits): "));
        for word in ["flush", "add-stateful", "nat", "clear", "limit", "tcp-pickup", "udp-replied"] {
            assert!(explain(word).unwrap().starts_with(&format!("{word}: ")), "{word}");
        }
        assert!(explain("nonsense").is_err());
    }
}
