//! Completion of the arguments of network functions, from their usage.
//!
//! Theory of operation. A usage such as `RATE [burst NUMBER] [forward|reverse]` is a list of groups of
//! alternatives. Words in small letters are typed as they are; words in capitals stand for others. Behind a
//! word whose group goes on, the next group of the usage is offered; otherwise the first groups of all
//! brackets and alternatives are.

use mmb_lang::Candidate;

/// A group of alternatives in a usage.
struct Group<'a> {
    words: Vec<&'a str>,
    /// The group begins an argument.
    is_first: bool,
    /// The argument goes on with the next group.
    goes_on: bool,
}

/// Returns the type and the argument in front of the cursor of a line `nf add NAME TYPE [ARG…]`, if the
/// cursor is behind the type. `before` ends in front of the word at the cursor.
pub fn type_and_argument(before: &str) -> Option<(&str, Option<&str>)> {
    let mut words = before.split_whitespace().peekable();
    words.next_if_eq(&"mmb");
    let (nf, add, _, kind) = (words.next()?, words.next()?, words.next()?, words.next()?);
    (nf == "nf" && add == "add").then(|| (kind, words.last()))
}

/// Returns the words that can stand behind an argument, each with what follows it. None: behind the type.
pub fn candidates(usage: &str, last: Option<&str>) -> Vec<Candidate> {
    let groups = groups(usage);
    let at = last.and_then(|last| groups.iter().position(|group| group.words.contains(&last)));
    let goes_on = at.filter(|&at| groups[at].goes_on);
    let offered = match goes_on {
        Some(at) => groups.get(at + 1..at + 2).unwrap_or_default(),
        None => &groups[..],
    };
    let mut found: Vec<Candidate> = Vec::new();
    for (at, group) in offered.iter().enumerate().filter(|(_, group)| goes_on.is_some() || group.is_first) {
        let next = offered.get(at + 1).filter(|_| group.goes_on);
        let help = next.map_or_else(String::new, |next| next.words.join("|"));
        for word in group.words.iter().filter(|word| is_literal(word)) {
            if found.iter().all(|known| known.text != *word) {
                found.push(Candidate { text: (*word).to_owned(), help: help.clone() });
            }
        }
    }
    found
}

fn groups(usage: &str) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let (mut is_first, mut depth) = (true, 0);
    for part in usage.split_whitespace() {
        let begins = part == "|" || part.starts_with('[');
        if begins && let Some(group) = groups.last_mut() {
            group.goes_on = false;
        }
        is_first |= begins && (part == "|" || depth == 0);
        depth += part.matches('[').count();
        depth = depth.saturating_sub(part.matches(']').count());
        if part == "|" {
            continue;
        }
        let words = part.split(['|', '[', ']', '…']).filter(|word| !word.is_empty()).collect();
        let goes_on = !part.ends_with([']', '…']);
        groups.push(Group { words, is_first, goes_on });
        is_first = !goes_on;
    }
    if let Some(group) = groups.last_mut() {
        group.goes_on = false;
    }
    groups
}

/// Whether a word of a usage is typed as it stands there.
fn is_literal(word: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(usage: &str, last: Option<&str>) -> Vec<String> {
        candidates(usage, last).into_iter().map(|c| format!("{} {}", c.text, c.help).trim().into()).collect()
    }

    #[test]
    fn arguments_follow_their_usage() {
        let police = "RATE [burst NUMBER] [per session|source] [forward|reverse]";
        assert_eq!(
            texts(police, Some("10mbit")),
            ["burst NUMBER", "per session|source", "forward", "reverse"]
        );
        assert_eq!(texts(police, Some("per")), ["session", "source"]);
        assert_eq!(texts(police, Some("source")), texts(police, None));
        assert!(texts(police, Some("burst")).is_empty());
        let count = "[ipfix HOST:PORT | json PATH] [active SECONDS]";
        assert_eq!(texts(count, None), ["ipfix HOST:PORT", "json PATH", "active SECONDS"]);
        let lb = "ADDRESS[:PORT][*WEIGHT]… [by hash|round-robin] [check tcp [PORT]|none] [every SECONDS]";
        assert_eq!(texts(lb, Some("10.0.0.1")), ["by hash|round-robin", "check tcp", "every SECONDS"]);
        let digest = "sha256|crc32c [known FILE]";
        assert_eq!(texts(digest, None), ["sha256", "crc32c", "known FILE"]);
        assert_eq!(texts(digest, Some("sha256")), texts(digest, None));
        assert_eq!(texts("", None), [""; 0]);
    }

    #[test]
    fn the_type_is_the_fourth_word() {
        assert_eq!(type_and_argument("nf add q police "), Some(("police", None)));
        assert_eq!(type_and_argument("mmb nf add q police 10mbit per "), Some(("police", Some("per"))));
        assert_eq!(type_and_argument("nf add q "), None);
        assert_eq!(type_and_argument("nf set q police x "), None);
    }
}
