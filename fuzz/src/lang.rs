//! Properties of the language for any text. The fuzz target `lang` runs them on the fuzzer's input. A test of
//! the crate runs them on the corpus, on random texts and on valid lines with typing errors.

use mmb_lang::{
    Body, Branch, Chain, Command, Diagnostic, Match, Names, SetKind, check as check_rule, check_filter,
    complete, load_file, parse_file, parse_line, parse_matches,
};

/// Maximum number of lines of an input that are checked one by one.
const LINES: usize = 40;
/// Maximum number of lines of an input, and of positions in a line, that completion is tested with. It offers
/// many words.
const COMPLETED: usize = 3;
const CURSORS: usize = 6;

/// Panics if a property does not hold for `text`, as a file and as single lines.
pub fn check(text: &[u8]) {
    check_file(text);
    let text = String::from_utf8_lossy(text);
    text.split('\n').take(LINES).for_each(check_line);
    for line in text.split('\n').take(COMPLETED) {
        let places = line.char_indices().map(|(at, _)| at);
        let step = line.chars().count() / CURSORS + 1;
        places.step_by(step).chain([line.len()]).for_each(|cursor| check_completion(line, cursor));
    }
}

fn check_file(text: &[u8]) {
    let parsed = parse_file(text);
    match load_file(text) {
        // A rule that passes the check has passed the parser.
        Ok(commands) => assert_eq!(parsed.as_ref(), Ok(&commands)),
        Err(errors) => {
            assert!((1..=20).contains(&errors.len()));
            assert!(errors.is_sorted_by_key(|error| error.line) && errors[0].line > 0);
            errors.iter().for_each(|error| check_rendered(&error.render_in_file("a file", text)));
        }
    }
    let commands = parsed.iter().flatten();
    assert!(commands.clone().zip(commands.skip(1)).all(|(a, b)| a.line < b.line));
}

fn check_line(line: &str) {
    match parse_matches(line) {
        Ok(matches) => {
            let printed: Vec<String> = matches.iter().map(Match::to_string).collect();
            assert_eq!(parse_matches(&printed.join(" ")), Ok(matches), "{line:?} prints as {printed:?}");
        }
        Err(error) => check_error(line, &error),
    }
    match parse_line(line) {
        Ok(None) => {}
        Ok(Some(command)) => check_command(line, &command),
        Err(error) => check_error(line, &error),
    }
}

/// A command prints as a line that parses to the same command. An error of the check marks a part of the
/// line.
fn check_command(line: &str, command: &Command) {
    let printed = command.to_string();
    assert_eq!(parse_line(&printed).as_ref(), Ok(&Some(command.clone())), "{line:?} prints as {printed:?}");
    let checked = match command {
        Command::Add(rule) => check_rule(rule),
        Command::ShowConnections { matches, .. } | Command::ClearConnections { matches } => {
            check_filter(matches)
        }
        Command::ChainAdd(chain) | Command::ChainSet(chain) => {
            let mut parts = 0;
            check_body(&chain.body, 0, &mut parts);
            assert!((1..=Chain::MAX_PARTS).contains(&parts), "{line:?}");
            Ok(())
        }
        _ => Ok(()),
    };
    if let Err(error) = checked {
        assert!(error.span.start < error.span.end);
        check_error(line, &error);
    }
}

/// Chains do not exceed the limits, and every step has a function or branches.
fn check_body(body: &Body, depth: usize, parts: &mut usize) {
    assert!(depth <= Chain::MAX_DEPTH);
    for step in &body.0 {
        assert!(step.function.is_some() || !step.arms.is_empty());
        *parts += usize::from(step.function.is_some()) + step.arms.len();
        let others = step.arms.split_last().map_or(&[][..], |(_, others)| others);
        assert!(!others.iter().any(Branch::is_else));
        for arm in &step.arms {
            assert!(step.function.is_none() || arm.label.is_some());
            check_body(&arm.body, depth + 1, parts);
        }
    }
}

fn check_error(line: &str, error: &Diagnostic) {
    assert!(error.span.start <= error.span.end && error.span.end <= line.len());
    assert!(line.is_char_boundary(error.span.start) && line.is_char_boundary(error.span.end));
    assert!(!error.message.is_empty() && !error.message.ends_with('.'));
    check_rendered(&error.render(line));
}

/// Fit for a terminal: two to four short lines of visible characters, one of them with carets.
fn check_rendered(rendered: &str) {
    let lines: Vec<&str> = rendered.split('\n').collect();
    assert!((3..=4).contains(&lines.len()), "{rendered}");
    assert!(lines.iter().all(|line| line.len() < 1000 && !line.contains(char::is_control)), "{rendered}");
    assert!(lines[2].trim_start().chars().all(|c| c == '^') && lines[2].contains('^'), "{rendered}");
}

/// A candidate of the completion is valid: the line up to the candidate has no error except that it ends too
/// early.
fn check_completion(line: &str, cursor: usize) {
    let known = ["lan", "eth0.100", "drop", "no name", "nat"].map(str::to_owned);
    let types = [("count".to_owned(), "counts packets".to_owned())];
    let rules = [("web".to_owned(), "add all drop name web".to_owned())];
    let sets = SetKind::ALL.map(|kind| (format!("set-{}", kind.word()), kind));
    let known = &known;
    let names = Names {
        interfaces: known,
        pools: known,
        instances: known,
        chains: known,
        brokers: known,
        domains: known,
        sets: &sets,
        types: &types,
        rules: &rules,
    };
    let found = complete(line, cursor, &names);
    assert!(found.start <= cursor);
    for candidate in &found.candidates {
        assert!(candidate.text.starts_with(&line[found.start..cursor]) && !candidate.help.is_empty());
        let completed = format!("{}{}", &line[..found.start], candidate.text);
        if let Err(error) = parse_line(&completed) {
            assert_eq!(error.span.start, completed.len(), "{completed:?}: {error}");
        }
    }
}
