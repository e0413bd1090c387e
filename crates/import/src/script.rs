//! The result of an import: rules, comments, and remarks on what has no equal rule.

use std::collections::HashSet;

use serde::Serialize;

use mmb_lang::{Command, check, parse_line};

/// Maximum length of a source text in a remark, in characters.
const SHOWN: usize = 200;

/// The lines of an import, in order.
#[derive(Debug, Default)]
pub struct Script {
    lines: Vec<Line>,
    /// Place and reason of each remark: a rule may be reached several times.
    remarked: HashSet<(String, String)>,
    /// Number of rules of the source that are to be converted.
    total: usize,
    /// Number of rules of the source that share a remark with others and are not converted.
    skipped: usize,
}

#[derive(Debug)]
enum Line {
    Comment(String),
    Rule(String),
    Remark(Remark),
}

/// A remark on a rule of the source that has no equal rule in the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// How the rule was converted.
    pub kind: Kind,
    /// Place in the source: `line 12`, `table inet filter chain forward handle 5`.
    pub place: String,
    /// The text of the rule.
    pub source: String,
    /// The reason, as text.
    pub reason: String,
}

/// How the rule of a [`Remark`] was converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It was not converted.
    NotMapped,
    /// The result differs in its effect.
    Differs,
    /// No rule is needed.
    Note,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::NotMapped => "not mapped",
            Kind::Differs => "differs",
            Kind::Note => "note",
        }
    }
}

/// The import as one JSON document.
#[derive(Serialize)]
struct Document<'a> {
    rules: Vec<&'a str>,
    remarks: Vec<&'a Remark>,
}

impl Script {
    /// The script with a comment as its first line.
    pub fn with_title(mut self, text: &str) -> Self {
        self.lines.insert(0, Line::Comment(plain(text)));
        self
    }

    /// Adds a comment.
    pub fn comment(&mut self, text: impl AsRef<str>) {
        self.lines.push(Line::Comment(plain(text.as_ref())));
    }

    /// Adds a rule in its canonical form. A rule that the language refuses becomes a remark.
    pub fn rule(&mut self, text: &str, place: &str, source: &str) {
        let refused = match parse_line(text) {
            Ok(Some(Command::Add(rule))) => match check(&rule) {
                Ok(_) => return self.lines.push(Line::Rule(rule.to_string())),
                Err(refused) => refused.message,
            },
            Ok(_) => "not a rule".into(),
            Err(refused) => refused.message,
        };
        self.remark(Kind::NotMapped, place, source, format!("`{}`: {refused}", plain(text)));
    }

    /// Adds a line about named sets or NAT in its canonical form. A line that is refused becomes a remark.
    /// Returns whether it was added.
    pub fn line(&mut self, text: &str, place: &str, source: &str) -> bool {
        use Command::{ElementAdd, NatForwardAdd, NatPoolAdd, SetAdd};
        let reason = match parse_line(text) {
            Ok(Some(command @ (SetAdd(_) | ElementAdd(_) | NatPoolAdd(_) | NatForwardAdd(_)))) => {
                self.lines.push(Line::Rule(command.to_string()));
                return true;
            }
            Ok(_) => "neither a set nor NAT".into(),
            Err(refused) => format!("`{}`: {}", plain(text), refused.message),
        };
        self.remark(Kind::NotMapped, place, source, reason);
        false
    }

    /// Adds a line with a setting.
    pub fn setting(&mut self, text: &'static str) {
        self.lines.push(Line::Rule(text.to_owned()));
    }

    /// Notes the number of rules that are to be converted.
    pub fn set_total(&mut self, rules: usize) {
        self.total = rules;
    }

    /// Adds a remark.
    pub fn remark(&mut self, kind: Kind, place: &str, source: &str, reason: impl Into<String>) {
        let remark =
            Remark { kind, place: place.to_owned(), source: plain(source), reason: plain(&reason.into()) };
        if self.remarked.insert((remark.place.clone(), remark.reason.clone())) {
            self.lines.push(Line::Remark(remark));
        }
    }

    /// Adds a remark on a chain whose rules are not converted, although they are about the same packets.
    pub fn skip_chain(&mut self, place: &str, rules: usize, source: &str, reason: impl Into<String>) {
        self.remark(Kind::NotMapped, place, source, reason);
        self.skipped += rules.saturating_sub(1);
    }

    /// The script as a configuration file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            match line {
                Line::Comment(comment) => text.push_str(&format!("# {comment}\n")),
                Line::Rule(rule) => text.push_str(&format!("{rule}\n")),
                Line::Remark(Remark { kind, place, source, reason }) => {
                    text.push_str(&format!("# {}: {place}: {source}\n#   {reason}\n", kind.words()));
                }
            }
        }
        text
    }

    /// The script as a JSON document.
    pub fn json(&self) -> impl Serialize {
        let rules = self.lines.iter().filter_map(|line| match line {
            Line::Rule(rule) => Some(rule.as_str()),
            _ => None,
        });
        Document { rules: rules.collect(), remarks: self.remarks().collect() }
    }

    /// The remarks, in order.
    pub fn remarks(&self) -> impl Iterator<Item = &Remark> {
        self.lines.iter().filter_map(|line| if let Line::Remark(remark) = line { Some(remark) } else { None })
    }

    /// The rules that were not converted or differ, as a list. Empty if there are none.
    pub fn failures(&self) -> String {
        let failures = self.remarks().filter(|remark| remark.kind != Kind::Note);
        let line = |Remark { kind, place, source, reason }: &Remark| {
            format!("{place}: {}: {source}\n  {reason}\n", kind.words())
        };
        failures.map(line).collect()
    }

    /// How many rules were converted, in one line.
    pub fn summary(&self) -> String {
        let places = |kind| {
            let all: HashSet<&str> =
                self.remarks().filter(|remark| remark.kind == kind).map(|remark| &*remark.place).collect();
            all.len()
        };
        let (lost, differs) = (places(Kind::NotMapped), places(Kind::Differs));
        let converted = self.total.saturating_sub(lost + self.skipped);
        format!("{converted} of {} rules converted, {differs} with a difference", self.total)
    }
}

/// Text for a comment: one line, without control characters, of limited length.
fn plain(text: &str) -> String {
    let mut plain: String = text.chars().take(SHOWN).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        plain.push('…');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_canonical_and_refused_ones_are_remarks() {
        let mut script = Script::default();
        script.comment("from\nnowhere");
        script.rule("add ip-proto 6 drop", "line 1", "tcp");
        script.rule("add ip-proto 6 udp-dport 7 drop", "line 2", "tcp with \u{1b}");
        script.remark(Kind::Note, "line 3", "log", "nothing to do");
        let text = script.text();
        assert!(text.starts_with(
            "# from?nowhere\nadd ip-proto tcp drop\n# not mapped: line 2: tcp with ?\n#   `add ip"
        ));
        assert!(text.ends_with("# note: line 3: log\n#   nothing to do\n"));
        assert!(text.lines().all(|line| parse_line(line).is_ok()), "{text}");
        assert!(script.failures().starts_with("line 2: not mapped: tcp with ?\n  `add ip-proto"));
        script.remark(Kind::Differs, "line 1", "tcp", "other");
        script.set_total(3);
        assert_eq!(script.summary(), "2 of 3 rules converted, 1 with a difference");
        assert_eq!(plain(&"ä".repeat(300)).chars().count(), SHOWN + 1);
        assert!(Script::default().failures().is_empty());
    }
}
