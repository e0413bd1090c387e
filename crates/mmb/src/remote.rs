//! One-shot commands, which the daemon runs.

mod pcapng_tail;

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mmb_control::api::ConfigEntry;
use mmb_control::{Client, ClientError, count, render};
use serde::Serialize;

use self::pcapng_tail::Tail;
use crate::cli::{ApplyArgs, CaptureArgs, SaveArgs};
use crate::failure::{Failure, Pipe, print};
use crate::pager::Pager;
use crate::target::Target;
use crate::watch;

/// Runs one line of the language.
pub fn line(
    first: &str,
    words: &[String],
    target: &Target,
    json: bool,
    pager: &Pager,
) -> Result<(), Failure> {
    command(&mut target.connect()?, &join(first, words), None, json, pager)
}

/// Joins the words of the command line to a line of the language. It does not matter how the shell split
/// them, except that a path or an argument of a function with blanks stays one word.
fn join(first: &str, words: &[String]) -> String {
    let mut text = first.to_owned();
    for (at, word) in words.iter().enumerate() {
        let has_blanks = word.contains(char::is_whitespace) && !word.contains('"');
        if is_text(first, words, at) {
            text.push_str(&format!(" \"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")));
        } else if has_blanks && is_argument(first, words, at) {
            text.push_str(&format!(" \"{}\"", word.replace('\\', "\\\\")));
        } else {
            text.push_str(&format!(" {word}"));
        }
    }
    text
}

/// Whether a word of the command line is the comment on a rule or a set, or the prefix of log lines, without
/// quotes of its own.
fn is_text(first: &str, words: &[String], at: usize) -> bool {
    let before = |distance| Some(words.get(at.checked_sub(distance)?)?.as_str());
    let is_rule = first.starts_with("add");
    let is_comment = before(1) == Some("comment") && (is_rule || first == "set" && at >= 3);
    let is_prefix = before(1) == Some("prefix") && before(2) == Some("log") && is_rule;
    (is_comment || is_prefix) && !words[at].starts_with('"')
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

/// Runs a line and prints its output as it arrives; a long listing goes through the pager. `number` is the
/// number of the line in a script.
pub fn command(
    client: &mut Client,
    line: &str,
    number: Option<u32>,
    json: bool,
    pager: &Pager,
) -> Result<(), Failure> {
    let is_listing = matches!(mmb_lang::parse_line(line), Ok(Some(command)) if watch::is_listing(&command));
    let mut out = if is_listing { pager.output() } else { Pager::Off.output() };
    client.print(line, json, |piece| out.write(piece)).map_err(|e| Failure::of_line(line, number, &e))?;
    out.end()
}

/// `mmb capture`: lines of text, or a pcapng file that this process writes.
pub fn capture(args: &CaptureArgs, target: &Target, json: bool) -> Result<(), Failure> {
    let Some(path) = &args.output else {
        return line("capture", &args.words, target, json, &Pager::Off);
    };
    if json {
        return Err(Failure::usage("--json and -w exclude each other"));
    }
    let text = join("capture", &args.words);
    let failed = |e: &ClientError| Failure::of_line(&text, None, e);
    let mut client = target.connect()?;
    let mut tail = Tail::default();
    if path == Path::new("-") {
        let mut out = Pipe::new();
        let write = |piece: &[u8]| {
            tail.push(piece);
            out.write(piece)
        };
        client.capture(&text, write).map_err(|e| failed(&e))?;
        if let Some(sentence) = tail.comment() {
            eprintln!("{sentence}");
        }
        return out.end();
    }
    // Only a capture that has begun replaces a file.
    let (mut file, mut error) = (None, None);
    let write = |piece: &[u8]| {
        tail.push(piece);
        let written = match &mut file {
            Some(file) => std::fs::File::write_all(file, piece),
            None => std::fs::File::create(path).and_then(|new| file.insert(new).write_all(piece)),
        };
        error = written.err();
        error.is_none()
    };
    client.capture(&text, write).map_err(|e| failed(&e))?;
    match error {
        Some(e) => Err(Failure::new(format!("cannot write {}: {e}", name(path)))),
        None => tail.comment().map_or(Ok(()), |sentence| print(&format!("{sentence}\n"))),
    }
}

/// `mmb apply FILE`.
pub fn apply(args: &ApplyArgs, target: &Target, json: bool) -> Result<(), Failure> {
    let text = apply_file(&mut target.connect()?, args, json)?;
    print(&text)
}

/// Applies a file and returns the output.
pub fn apply_file(client: &mut Client, args: &ApplyArgs, json: bool) -> Result<String, Failure> {
    let text = read_file(&args.file)?;
    let reply = client.apply(text.clone(), args.allow_empty, args.confirm);
    let reply = reply.map_err(|e| Failure::of_remote_file(&name(&args.file), &text, &e))?;
    output(&reply, json, || render::applied(&reply))
}

/// `mmb save [FILE]`.
pub fn save(args: &SaveArgs, target: &Target, json: bool) -> Result<(), Failure> {
    let text = save_file(&mut target.connect()?, args, json)?;
    print(&text)
}

/// Writes the running configuration to a file, with the rights of this process, and returns the output. The
/// file has the old or the new text at every moment, also if the machine stops.
pub fn save_file(client: &mut Client, args: &SaveArgs, json: bool) -> Result<String, Failure> {
    let entry: ConfigEntry = client.get("/v1/config").map_err(Failure::new)?;
    // The name is one of the daemon's machine.
    let own_file = entry.file.filter(|_| !client.is_remote()).map(PathBuf::from);
    let file = args.file.clone().or(own_file).ok_or_else(|| match client.is_remote() {
        true => Failure::new(
            "the file of the daemon is on its machine: `mmb save FILE` writes one on this machine",
        ),
        false => {
            Failure::new("the daemon was started without a configuration file: `mmb save FILE` names one")
        }
    })?;
    write_file(&file, entry.config.as_bytes())
        .map_err(|e| Failure::new(format!("cannot write {}: {e}", file.display())))?;
    let lines = entry.config.lines().count() as u64;
    let reply = Saved { file: file.display().to_string(), lines };
    output(&reply, json, || format!("{} saved to {}\n", count(lines, "line"), file.display()))
}

/// The reply of `mmb save`.
#[derive(Serialize)]
struct Saved {
    file: String,
    lines: u64,
}

/// Replaces the contents of a file. A file that exists keeps its mode; a link leads to the file.
fn write_file(file: &Path, text: &[u8]) -> io::Result<()> {
    let target = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let directory = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = tempfile::Builder::new().prefix(".mmb-save-").tempfile_in(directory)?;
    let mode = std::fs::metadata(&target).map_or(0o640, |found| found.permissions().mode());
    temporary.as_file().set_permissions(Permissions::from_mode(mode))?;
    temporary.write_all(text)?;
    temporary.as_file().sync_all()?;
    temporary.persist(&target).map_err(|e| e.error)?;
    File::open(directory)?.sync_all()
}

/// `mmb diff FILE`.
pub fn diff(file: &Path, target: &Target, json: bool, pager: &Pager) -> Result<(), Failure> {
    let mut client = target.connect()?;
    let text = diff_file(&mut client, file, json)?;
    pager.print(&text)
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
    use super::*;

    #[test]
    fn a_saved_file_keeps_its_mode_and_its_link() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("mmb.conf"), directory.path().join("link"));
        write_file(&file, b"old\n").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        std::fs::set_permissions(&file, Permissions::from_mode(0o604)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_file(&link, b"new\n").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new\n");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o604);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
        assert!(write_file(&directory.path().join("none/mmb.conf"), b"").is_err());
    }

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
        assert_eq!(
            join("add", &["all", "drop", "comment", r#"say "no" to \ #5"#, "name", "web"]),
            r#"add all drop comment "say \"no\" to \\ #5" name web"#
        );
        assert_eq!(
            join("add", &["all", "drop", "comment", "\"two", "words\""]),
            "add all drop comment \"two words\""
        );
        assert_eq!(
            join("add", &["all", "log", "prefix", "two words", "drop"]),
            "add all log prefix \"two words\" drop"
        );
        assert_eq!(
            join("set", &["b", "add", "192.0.2.1", "comment", "port scan"]),
            "set b add 192.0.2.1 comment \"port scan\""
        );
        assert_eq!(join("nf", &["set", "w", "reload now"]), "nf set w reload now");
    }
}
