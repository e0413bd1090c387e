//! One-shot commands, which the daemon runs.

use std::io::Read;
use std::path::{Path, PathBuf};

use mmb_control::{Client, client_path, render};

use crate::cli::ApplyArgs;
use crate::failure::{Failure, Pipe, print};

/// Runs one line of the language.
pub fn line(first: &str, words: &[String], socket: Option<PathBuf>, json: bool) -> Result<(), Failure> {
    command(&mut connect(socket)?, &join(first, words), None, json)
}

/// Joins the words of the command line to a line of the language. It does not matter how the shell split
/// them, except that a path or an argument of a function with blanks stays one word.
fn join(first: &str, words: &[String]) -> String {
    let mut text = first.to_owned();
    for (at, word) in words.iter().enumerate() {
        let has_blanks = word.contains(char::is_whitespace) && !word.contains('"');
        if has_blanks && is_argument(first, words, at) {
            text.push_str(&format!(" \"{}\"", word.replace('\\', "\\\\")));
        } else {
            text.push_str(&format!(" {word}"));
        }
    }
    text
}

/// Whether a word of the command line is a path or an argument of a function. All arguments of a function
/// may also be one word of the command line, which is not an argument.
fn is_argument(first: &str, words: &[String], at: usize) -> bool {
    match (first, words.first().map(String::as_str)) {
        ("interface", _) => true,
        // nf add NAME TYPE ARGUMENTS…
        ("nf", Some("add")) => at >= 3 && words.len() > 4,
        // nf set NAME ARGUMENTS…
        ("nf", Some("set")) => at >= 2 && words.len() > 3,
        _ => false,
    }
}

/// Runs a line and prints its output as it arrives. `number` is the number of the line in a script.
pub fn command(client: &mut Client, line: &str, number: Option<u32>, json: bool) -> Result<(), Failure> {
    let mut out = Pipe::new();
    client.print(line, json, |piece| out.write(piece)).map_err(|e| Failure::of_line(line, number, &e))?;
    out.end()
}

/// `mmb apply FILE`.
pub fn apply(args: &ApplyArgs, socket: Option<PathBuf>, json: bool) -> Result<(), Failure> {
    let mut client = connect(socket)?;
    let text = apply_file(&mut client, &args.file, args.allow_empty, json)?;
    print(&text)
}

/// Applies a file and returns the output.
pub fn apply_file(
    client: &mut Client,
    file: &Path,
    allow_empty: bool,
    json: bool,
) -> Result<String, Failure> {
    let text = read_file(file)?;
    let reply = client.apply(text.clone(), allow_empty);
    let reply = reply.map_err(|e| Failure::of_remote_file(&name(file), &text, &e))?;
    output(&reply, json, || render::applied(&reply))
}

/// `mmb diff FILE`.
pub fn diff(file: &Path, socket: Option<PathBuf>, json: bool) -> Result<(), Failure> {
    let mut client = connect(socket)?;
    let text = diff_file(&mut client, file, json)?;
    print(&text)
}

/// Compares a file with the running configuration and returns the output.
pub fn diff_file(client: &mut Client, file: &Path, json: bool) -> Result<String, Failure> {
    let text = read_file(file)?;
    let reply = client.diff(text.clone()).map_err(|e| Failure::of_remote_file(&name(file), &text, &e))?;
    output(&reply, json, || render::diff(&reply))
}

/// The output for a reply: text, or JSON.
fn output(
    reply: &impl serde::Serialize,
    json: bool,
    text: impl FnOnce() -> String,
) -> Result<String, Failure> {
    if !json {
        return Ok(text());
    }
    let document = serde_json::to_string(reply).map_err(Failure::new)?;
    Ok(document + "\n")
}

/// A client for the daemon at `socket`, or at the default path.
pub fn connect(socket: Option<PathBuf>) -> Result<Client, Failure> {
    let path = socket.unwrap_or_else(client_path);
    Client::new(&path).map_err(|e| Failure::new(format!("cannot start the client: {e}")))
}

/// Reads a file; `-` is standard input.
pub fn read_file(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut text).map(drop)
    } else {
        std::fs::read(file).map(|bytes| text = bytes)
    };
    read.map_err(|e| Failure::new(format!("cannot read {}: {e}", name(file))))?;
    Ok(text)
}

/// The name of a file in messages.
pub fn name(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_joined_to_a_line() {
        let join = |first, words: &[&str]| {
            super::join(first, &words.iter().map(|w| w.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(join("add", &["tcp-dport", "80", "!", "ip-df", "drop"]), "add tcp-dport 80 ! ip-df drop");
        assert_eq!(join("add", &["tcp-dport 80 drop"]), "add tcp-dport 80 drop");
        assert_eq!(
            join("interface", &["add", "a", "pcap", "my in.pcap", "/o"]),
            "interface add a pcap \"my in.pcap\" /o"
        );
        assert_eq!(
            join("nf", &["add", "w", "match", "ATTACK", "evil word", r"/a \d/", "\"b c\"", "mask"]),
            r#"nf add w match ATTACK "evil word" "/a \\d/" "b c" mask"#
        );
        assert_eq!(
            join("nf", &["add", "k", "split", "web: tcp-dport {80,443}"]),
            "nf add k split web: tcp-dport {80,443}"
        );
        assert_eq!(join("nf", &["set", "w", "reload now"]), "nf set w reload now");
    }
}
