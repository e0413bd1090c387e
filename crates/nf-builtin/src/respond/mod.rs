//! `respond`: answers requests of a broker itself.
//!
//! Theory of operation. The answer is made with the instance: a text, the bytes of a file as they were then,
//! or a page with the name of the status. It is copied to each client, so a file is as long as what a broker
//! keeps for a client that reads slowly, at most. A directory is read with the instance, too: each of its
//! files has an answer then, by the path of a request.

mod media;

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mmb_http::{Target, normalize_path};
use mmb_nf::{ArgError, FileAccess, L7Answer, L7Function, L7Handler, L7Request, L7Verdict, Setup};

use self::media::media_of;
use crate::http_edit::{header_name, header_value};
use crate::shared::input_file::read_bytes;
use crate::shared::wildcard::matches_path;

/// Most bytes of a file, and of all headers.
const MOST_FILE: u64 = 64 << 10;
const MOST_HEADERS: usize = 4096;
/// Most files of a directory, and most bytes of all of them.
const MOST_FILES: usize = 1000;
const MOST_DIRECTORY: usize = 16 << 20;
/// What a path that ends with a slash stands for.
const INDEX: &[u8] = b"index.html";
/// Headers that the broker writes itself.
const OWN_HEADERS: [&[u8]; 2] = [b"content-type", b"date"];

/// See the module's documentation.
pub(crate) struct Respond {
    answer: L7Answer,
    /// None: all requests are answered.
    path: Option<Box<[u8]>>,
    /// None: all requests have the same answer.
    directory: Option<Files>,
    answered: AtomicU64,
}

/// Answers by their paths below the directory, which begin with `/`.
type Files = HashMap<Box<[u8]>, L7Answer>;

impl Respond {
    /// Returns the answer to a request for a path in its normal form, with room behind it. None: another
    /// function answers.
    fn answer(&self, path: &[u8], is_read: bool) -> Option<&L7Answer> {
        let Some(files) = &self.directory else { return Some(&self.answer) };
        let prefix = self.path.as_deref().map_or(&[][..], |path| path.strip_suffix(b"/").unwrap_or(path));
        let below = path.strip_prefix(prefix).filter(|_| is_read)?;
        match below.ends_with(b"/") {
            true => files.get(&*[below, INDEX].concat()),
            false => files.get(below),
        }
    }
}

impl L7Handler for Respond {
    /// The normal form of a path.
    type Local = Vec<u8>;

    fn local(&self) -> Vec<u8> {
        Vec::new()
    }

    fn request(&self, request: &mut L7Request<'_>, room: &mut Vec<u8>) -> L7Verdict {
        let mut answer = Some(&self.answer);
        if self.path.is_some() || self.directory.is_some() {
            let message = &*request.message;
            let target = Target::read(message.method(), message.target(), None);
            let path = target.map_or(message.target(), |target| target.path);
            room.resize(path.len() + 1, 0);
            let is_meant =
                |path: &&[u8]| self.path.as_ref().is_none_or(|pattern| matches_path(pattern, path));
            let is_read = matches!(message.method(), b"GET" | b"HEAD");
            answer = normalize_path(path, room).filter(is_meant).and_then(|path| self.answer(path, is_read));
        }
        let Some(answer) = answer else { return L7Verdict::Pass };
        self.answered.fetch_add(1, Relaxed);
        L7Verdict::Answer(answer.clone())
    }
}

const ONE_BODY: &str = "a response has one text or file, or the files of one directory";

/// The parsed arguments.
struct Config {
    answer: L7Answer,
    headers: Vec<u8>,
    path: Option<Box<[u8]>>,
    directory: Option<Files>,
}

impl Config {
    fn of(answer: L7Answer) -> Config {
        Config { answer, headers: Vec::new(), path: None, directory: None }
    }

    /// # Errors
    /// The argument that is wrong, and what is accepted.
    fn parse(args: &[&str], files: &Arc<FileAccess>) -> Result<Config, ArgError> {
        let [status, rest @ ..] = args else { return Err(ArgError::missing("respond", "a status")) };
        let parsed = status.parse().ok().filter(|status| (200..600).contains(status));
        let status = parsed.ok_or_else(|| ArgError::invalid("status", status, "must be 200 to 599"))?;
        let mut config = Config::of(L7Answer::of_status(status));
        let mut words = rest;
        if let [text, rest @ ..] = words
            && !matches!(*text, "path" | "file" | "directory" | "header")
        {
            config.set_body("text/plain; charset=utf-8", text.as_bytes().into())?;
            words = rest;
        }
        while !words.is_empty() {
            words = config.option(words, files)?;
        }
        config.answer.headers = config.headers.as_slice().into();
        if config.directory.is_some() && config.path.as_ref().is_some_and(|path| path.contains(&b'*')) {
            return Err("`path` of a directory is where its files begin, and has no `*`".into());
        }
        for answer in config.directory.iter_mut().flat_map(HashMap::values_mut) {
            answer.headers = config.answer.headers.clone();
        }
        Ok(config)
    }

    /// Parses one option. Returns the arguments behind it.
    fn option<'w, 's>(
        &mut self,
        words: &'w [&'s str],
        files: &Arc<FileAccess>,
    ) -> Result<&'w [&'s str], ArgError> {
        match words {
            ["path", pattern, rest @ ..] => {
                if !pattern.starts_with(['/', '*']) {
                    return Err(ArgError::invalid("path", pattern, "must begin with `/` or `*`"));
                }
                if self.path.replace(pattern.as_bytes().into()).is_some() {
                    return Err("`path` stands twice".into());
                }
                Ok(rest)
            }
            ["file", path, rest @ ..] => {
                self.set_body(media_of(path), read_bytes(path, files, MOST_FILE)?.into())?;
                Ok(rest)
            }
            ["directory", path, rest @ ..] => {
                if self.answer.body.is_some() || self.directory.is_some() {
                    return Err(ONE_BODY.into());
                }
                self.directory = Some(self.read_directory(path, files)?);
                Ok(rest)
            }
            ["header", name, value, rest @ ..] => {
                if OWN_HEADERS.contains(&&*header_name(name)?) {
                    return Err(format!("the header `{name}` is written by the broker itself").into());
                }
                for part in [name.as_bytes(), b": ", &header_value(value)?, b"\r\n"] {
                    self.headers.extend_from_slice(part);
                }
                if self.headers.len() > MOST_HEADERS {
                    return Err(format!("the headers have more than {MOST_HEADERS} bytes").into());
                }
                Ok(rest)
            }
            ["path"] => Err(ArgError::missing("path", "a pattern")),
            ["file"] => Err(ArgError::missing("file", "a path")),
            ["directory"] => Err(ArgError::missing("directory", "a path")),
            ["header", ..] => Err(ArgError::missing("header", "a name and a value")),
            [extra, ..] => {
                let usage = Respond::USAGE;
                Err(format!("unknown argument `{extra}`: `respond` takes {usage}").into())
            }
            [] => Ok(words),
        }
    }

    /// Reads all files of a directory, each of which is the answer for its path.
    fn read_directory(&self, directory: &str, files: &Arc<FileAccess>) -> Result<Files, ArgError> {
        files.check(Path::new(directory))?;
        let (mut found, mut bytes) = (Files::new(), 0);
        for path in files.list_directory(Path::new(directory), MOST_FILES)? {
            let name = Path::new(directory).join(&path);
            let (name, path) = (name.to_string_lossy(), path.as_os_str().as_bytes());
            let mut file = Config::of(self.answer.clone());
            file.set_body(media_of(&name), read_bytes(&name, files, MOST_FILE)?.into())?;
            bytes += file.answer.body.as_ref().map_or(0, |body| body.len());
            if bytes > MOST_DIRECTORY {
                return Err(
                    format!("the files of `{directory}` have more than {MOST_DIRECTORY} bytes").into()
                );
            }
            found.insert([b"/", path].concat().into(), file.answer);
        }
        Ok(found)
    }

    fn set_body(&mut self, media: &'static str, body: Arc<[u8]>) -> Result<(), ArgError> {
        let answer = &mut self.answer;
        if matches!(answer.status, 204 | 205 | 304) {
            return Err(format!("a response with status {} has no text", answer.status).into());
        }
        if answer.body.replace(body).is_some() || self.directory.is_some() {
            return Err(ONE_BODY.into());
        }
        answer.media = media;
        Ok(())
    }
}

impl L7Function for Respond {
    const TYPE: &'static str = "respond";
    const USAGE: &'static str =
        "STATUS [TEXT|file FILE|directory DIRECTORY] [header NAME VALUE]… [path PATTERN]";
    const HELP: &'static str = "answers requests of a broker itself";

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let Config { answer, path, directory, .. } = Config::parse(setup.args, setup.files)?;
        Ok(Respond { answer, path, directory, answered: AtomicU64::new(0) })
    }

    fn report(&self) -> Vec<(String, String)> {
        vec![("requests answered".to_owned(), self.answered.load(Relaxed).to_string())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::http::testing::{answer_of, made, read_head};

    fn verdict(args: &[&str], target: &str) -> L7Verdict {
        let mut message = read_head(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        answer_of(&made::<Respond>(args).unwrap(), &mut message)
    }

    fn is_answered(args: &[&str], target: &str) -> bool {
        verdict(args, target) != L7Verdict::Pass
    }

    #[test]
    fn requests_are_answered_by_path() {
        assert!(is_answered(&["410"], "/any"));
        for (target, expected) in
            [("/a", true), ("/a/b?c", true), ("/x/../a", true), ("/%61", true), ("/ab", false), ("/", false)]
        {
            assert_eq!(is_answered(&["200", "text", "path", "/a"], target), expected, "{target}");
        }
    }

    #[test]
    fn an_answer_has_a_file_and_headers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("robots.TXT");
        std::fs::write(&path, "User-agent: *\n").unwrap();
        let file = path.display().to_string();
        let args = ["200", "file", &file, "header", "Cache-Control", "max-age=60", "header", "X-A", ""];
        let L7Verdict::Answer(answer) = verdict(&args, "/") else { panic!("no answer") };
        assert_eq!(answer.media, "text/plain; charset=utf-8");
        assert_eq!(answer.body.as_deref(), Some(&b"User-agent: *\n"[..]));
        assert_eq!(&*answer.headers, b"Cache-Control: max-age=60\r\nX-A: \r\n");
        std::fs::write(&path, vec![0; MOST_FILE as usize + 1]).unwrap();
        let error = made::<Respond>(&args).err().unwrap().to_string();
        assert!(error.contains("more than 65536 bytes"), "{error}");
    }

    #[test]
    fn files_of_a_directory_are_found_by_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("css")).unwrap();
        for (name, text) in [("index.html", "home"), ("css/a b.css", "style"), ("css/index.html", "list")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let path = folder.path().display().to_string();
        let body = |args: &[&str], target: &str| match verdict(args, target) {
            L7Verdict::Answer(answer) => Some((answer.media, answer.body.unwrap().to_vec(), answer.headers)),
            _ => None,
        };
        let all = ["200", "directory", &path, "header", "X-A", "b"];
        let below = ["200", "directory", &path, "path", "/static"];
        let text = |args: &[&str], target: &str| {
            body(args, target).map(|(_, text, _)| String::from_utf8(text).unwrap()).unwrap_or_default()
        };
        for (target, expected) in [
            ("/", "home"),
            ("/index.html?x", "home"),
            ("/css/a%20b.css", "style"),
            ("/css/../css/", "list"),
            ("/css", ""),
            ("/none", ""),
            ("//index.html", "home"),
        ] {
            assert_eq!(text(&all, target), expected, "{target}");
            assert_eq!(text(&below, &format!("/static{target}")), expected, "/static{target}");
        }
        for target in ["/", "/css/", "/staticindex.html", "/static/../index.html"] {
            assert_eq!(text(&below, target), "", "{target}");
        }
        let (media, _, headers) = body(&all, "/css/a%20b.css").unwrap();
        assert_eq!((media, &*headers), ("text/css; charset=utf-8", &b"X-A: b\r\n"[..]));
        let mut post = read_head("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(answer_of(&made::<Respond>(&all).unwrap(), &mut post), L7Verdict::Pass);
        let error = |args: &[&str]| made::<Respond>(args).err().unwrap().to_string();
        assert!(error(&["200", "directory", &path, "path", "/*.css"]).contains("no `*`"));
        assert!(error(&["200", "text", "directory", &path]).contains("one directory"));
        assert!(error(&["200", "directory", &path, "directory", &path]).contains("one directory"));
        assert!(error(&["200", "directory"]).contains("a path"));
        assert!(error(&["200", "directory", "/no/such/directory"]).contains("/no/such/directory"));
        assert!(error(&["204", "directory", &path]).contains("204 has no text"));
        std::fs::write(folder.path().join("large"), vec![0; MOST_FILE as usize + 1]).unwrap();
        assert!(error(&all).contains("more than 65536 bytes"));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (args, named) in [
            (&[][..], "a status"),
            (&["99"], "`99`"),
            (&["600"], "`600`"),
            (&["204", "x"], "204 has no text"),
            (&["200", "path"], "a pattern"),
            (&["200", "a", "b"], "`b`"),
            (&["200", "path", "x"], "`x`"),
            (&["200", "path", "/x", "path", "/y"], "twice"),
            (&["200", "file"], "a path"),
            (&["200", "file", "/no/such/file"], "/no/such/file"),
            (&["200", "header", "X"], "a name and a value"),
            (&["200", "header", "X Y", "1"], "`X Y`"),
            (&["200", "header", "X", "a\r\nb"], "control characters"),
            (&["200", "header", "Content-Length", "1"], "`Content-Length`"),
            (&["200", "header", "content-type", "a/b"], "`content-type`"),
        ] {
            let error = made::<Respond>(args).err().unwrap().to_string();
            assert!(error.contains(named), "{args:?}: {error}");
        }
    }
}
