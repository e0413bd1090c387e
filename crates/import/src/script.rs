//! What an import gives: lines of the language, and remarks on what they do not say.

use serde::Serialize;

use mmb_lang::{Command, check, parse_line};

/// Most characters of the source that a remark shows.
const SHOWN: usize = 200;

/// The lines of an import in their order.
#[derive(Debug, Default)]
pub struct Script {
    lines: Vec<Line>,
}

#[derive(Debug)]
enum Line {
    Comment(String),
    Rule(String),
    Remark(Remark),
}

/// Something that the rules do not say, or say otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// What became of it.
    pub kind: Kind,
    /// Where it stands: `line 12`, `table inet filter chain forward handle 5`.
    pub place: String,
    /// The text that stands there.
    pub source: String,
    /// Why, in words.
    pub reason: String,
}

/// What became of a rule that a [`Remark`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// There is no rule for it.
    NotMapped,
    /// There is, and it does not do quite the same.
    Differs,
    /// There need not be one.
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

    /// A line for people.
    pub fn comment(&mut self, text: impl AsRef<str>) {
        self.lines.push(Line::Comment(plain(text.as_ref())));
    }

    /// A rule, in its canonical text. What the language refuses becomes a remark.
    pub fn rule(&mut self, text: &str, place: &str, source: &str) {
        let refused = match parse_line(text) {
            Ok(Some(Command::Add(rule))) => match check(&rule) {
                Ok(_) => return self.lines.push(Line::Rule(rule.to_string())),
                Err(refused) => refused.message,
            },
            Ok(_) => "this is no rule".into(),
            Err(refused) => refused.message,
        };
        self.remark(Kind::NotMapped, place, source, format!("`{}`: {refused}", plain(text)));
    }

    /// Something that the rules do not say.
    pub fn remark(&mut self, kind: Kind, place: &str, source: &str, reason: impl Into<String>) {
        let remark =
            Remark { kind, place: place.to_owned(), source: plain(source), reason: plain(&reason.into()) };
        self.lines.push(Line::Remark(remark));
    }

    /// Everything, as a configuration file.
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

    /// Everything, for programs.
    pub fn json(&self) -> impl Serialize {
        let rules = self.lines.iter().filter_map(|line| match line {
            Line::Rule(rule) => Some(rule.as_str()),
            _ => None,
        });
        Document { rules: rules.collect(), remarks: self.remarks().collect() }
    }

    fn remarks(&self) -> impl Iterator<Item = &Remark> {
        self.lines.iter().filter_map(|line| if let Line::Remark(remark) = line { Some(remark) } else { None })
    }

    /// What did not map, as a list with a count at its end; None if everything did.
    pub fn failures(&self) -> Option<String> {
        let failures: Vec<_> = self.remarks().filter(|remark| remark.kind != Kind::Note).collect();
        let mut text = String::new();
        for Remark { kind, place, source, reason } in &failures {
            text.push_str(&format!("{place}: {}: {source}\n  {reason}\n", kind.words()));
        }
        let count = |kind| failures.iter().filter(|remark| remark.kind == kind).count();
        let (lost, differs) = (count(Kind::NotMapped), count(Kind::Differs));
        text.push_str(&format!("not mapped: {lost}, mapped with a difference: {differs}"));
        (!failures.is_empty()).then_some(text)
    }
}

/// Text that can stand in a comment: one line, no control characters, not without end.
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
    fn rules_are_canonical_and_what_is_none_is_a_remark() {
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
        let failures = script.failures().unwrap();
        assert!(failures.ends_with("not mapped: 1, mapped with a difference: 0"), "{failures}");
        assert_eq!(plain(&"ä".repeat(300)).chars().count(), SHOWN + 1);
        assert!(Script::default().failures().is_none());
    }
}
