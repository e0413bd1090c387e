//! Help while typing: completion, hints, and what words mean. All of it comes from the language's own tables.

use std::borrow::Cow;

use mmb_lang::{Candidate, Completion, Names, complete};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::failure::Failure;

/// Words of the shell itself.
const SHELL_WORDS: [(&str, &str); 5] = [
    ("apply", "make a file the configuration: apply <file>"),
    ("check", "say what is wrong with a file: check <file>"),
    ("diff", "show what apply would change: diff <file>"),
    ("help", "show help: help [<word>]"),
    ("exit", "leave the shell"),
];

/// Names that users have given.
#[derive(Default)]
pub struct Known {
    /// Interfaces.
    pub interfaces: Vec<String>,
    /// NAT pools.
    pub pools: Vec<String>,
    /// Service chains.
    pub chains: Vec<String>,
    /// Network functions.
    pub instances: Vec<String>,
    /// Types of these, each with a line about it.
    pub types: Vec<(String, String)>,
}

/// What the line editor asks for help; knows the names there are.
pub struct Assist {
    known: Known,
}

impl Assist {
    /// Help with these names.
    pub fn new(known: Known) -> Assist {
        Assist { known }
    }

    /// What can stand at `cursor`.
    fn candidates(&self, line: &str, cursor: usize) -> Completion {
        let Known { interfaces, pools, chains, instances, types } = &self.known;
        let names = Names { interfaces, pools, chains, instances, types };
        let mut found = complete(line, cursor, &names);
        let (before, typed) = line.get(..cursor).unwrap_or(line).split_at(found.start);
        if before.trim().is_empty() {
            let own = SHELL_WORDS.iter().filter(|(word, _)| word.starts_with(typed));
            found
                .candidates
                .extend(own.map(|(word, help)| Candidate { text: (*word).into(), help: (*help).into() }));
        }
        found
    }
}

impl Completer for Assist {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Completion { start, candidates } = self.candidates(line, pos);
        let one = candidates.len() == 1;
        let pair = |c: Candidate| Pair {
            // A word that is certain is followed by the next.
            replacement: if one { format!("{} ", c.text) } else { c.text.clone() },
            display: c.text,
        };
        Ok((start, candidates.into_iter().map(pair).collect()))
    }
}

impl Hinter for Assist {
    type Hint = String;

    /// The rest of the word when it is the only one possible, and its meaning.
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

impl Highlighter for Assist {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[2m{hint}\x1b[0m"))
    }
}

impl Validator for Assist {}
impl Helper for Assist {}

/// `LINE ?`: what can follow, one a line.
pub fn following(line: &str, assist: Assist) -> String {
    let candidates = assist.candidates(line, line.len()).candidates;
    if candidates.is_empty() {
        return "nothing can follow here\n".to_owned();
    }
    table(&candidates)
}

fn table(candidates: &[Candidate]) -> String {
    let width = candidates.iter().map(|c| c.text.chars().count()).max().unwrap_or(0);
    candidates.iter().map(|c| format!("{:width$}  {}", c.text, c.help).trim_end().to_owned() + "\n").collect()
}

/// `help WORD`: what a field or a command means.
pub fn explain(word: &str) -> Result<String, Failure> {
    if let Some(field) = mmb_lang::field(word) {
        let bits = if field.width_bits > 0 { format!(", {} bits", field.width_bits) } else { String::new() };
        return Ok(format!(
            "{} ({}{bits}): {}\nfor example: {}\n",
            field.name, field.proto, field.help, field.example
        ));
    }
    let assist = Assist::new(Known::default());
    let places = [
        "",
        "add all ",
        "show ",
        "interface ",
        "interface add x ",
        "set ",
        "set timeout ",
        "nat ",
        "nat pool ",
        "nat pool add x 192.0.2.1 ",
        "nf ",
        "chain ",
    ];
    let mut all = places.iter().flat_map(|line| assist.candidates(line, line.len()).candidates);
    match all.find(|c| c.text == word) {
        Some(c) => Ok(format!("{}: {}\n", c.text, c.help)),
        None => Err(Failure::new(format!("there is no help for `{word}`; `help` lists what there is"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        let assist = Assist::new(Known {
            interfaces: names(["lan", "wan"]),
            pools: names(["home", "office"]),
            chains: names(["web", "mail"]),
            instances: names(["stats", "guard"]),
            types: vec![("count".to_owned(), "counts".to_owned()), ("acl".to_owned(), "decides".to_owned())],
        });
        assist.candidates(line, line.len()).candidates.into_iter().map(|c| c.text).collect()
    }

    #[test]
    fn completes_commands_fields_and_interfaces() {
        assert!(texts("ad").contains(&"add".to_owned()));
        assert!(texts("he").contains(&"help".to_owned()));
        assert!(texts("add tcp-dp").contains(&"tcp-dport".to_owned()));
        assert_eq!(texts("add in w"), ["wan"]);
        assert_eq!(texts("wire l"), ["lan"]);
        assert_eq!(texts("add-stateful all nat o"), ["office"]);
        assert!(!texts("add he").contains(&"help".to_owned()));
        assert_eq!(texts("nf add x c"), ["count"]);
        assert_eq!(texts("nf del g"), ["guard"]);
        assert_eq!(texts("chain add c stats then g"), ["guard"]);
        assert_eq!(texts("chain del m"), ["mail"]);
        assert_eq!(texts("add-stateful all chain w"), ["web"]);
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
