//! `respond`: answers requests of a broker itself.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mmb_http::{Target, normalize_path};
use mmb_nf::{ArgError, L7Answer, L7Function, L7Handler, L7Request, L7Verdict, Setup};

use crate::shared::wildcard::matches_path;

/// See the module's documentation.
pub(crate) struct Respond {
    answer: L7Answer,
    /// None: all requests are answered.
    path: Option<Box<[u8]>>,
    answered: AtomicU64,
}

impl L7Handler for Respond {
    /// The normal form of a path.
    type Local = Vec<u8>;

    fn local(&self) -> Vec<u8> {
        Vec::new()
    }

    fn request(&self, request: &mut L7Request<'_>, room: &mut Vec<u8>) -> L7Verdict {
        if let Some(pattern) = &self.path {
            let message = &*request.message;
            let target = Target::read(message.method(), message.target(), None);
            let path = target.map_or(message.target(), |target| target.path);
            room.resize(path.len() + 1, 0);
            if !normalize_path(path, room).is_some_and(|path| matches_path(pattern, path)) {
                return L7Verdict::Pass;
            }
        }
        self.answered.fetch_add(1, Relaxed);
        L7Verdict::Answer(self.answer.clone())
    }
}

impl L7Function for Respond {
    const TYPE: &'static str = "respond";
    const USAGE: &'static str = "STATUS [TEXT] [path PATTERN]";
    const HELP: &'static str = "answers requests of a broker itself";

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let [status, rest @ ..] = setup.args else { return Err(ArgError::missing("respond", "a status")) };
        let parsed = status.parse().ok().filter(|status| (200..600).contains(status));
        let status = parsed.ok_or_else(|| ArgError::invalid("status", status, "must be 200 to 599"))?;
        let mut answer = L7Answer::of_status(status);
        let mut words = rest;
        if let [text, rest @ ..] = words
            && *text != "path"
        {
            if matches!(status, 204 | 205 | 304) {
                return Err(format!("a response with status {status} has no text").into());
            }
            (answer.media, answer.body) = ("text/plain; charset=utf-8", Some(text.as_bytes().into()));
            words = rest;
        }
        let path = match words {
            [] => None,
            ["path", path] if path.starts_with(['/', '*']) => Some(path.as_bytes().into()),
            ["path", path] => return Err(ArgError::invalid("path", path, "must begin with `/` or `*`")),
            ["path"] => return Err(ArgError::missing("path", "a pattern")),
            ["path", _, extra, ..] | [extra, ..] => {
                let usage = Self::USAGE;
                return Err(format!("unknown argument `{extra}`: `respond` takes {usage}").into());
            }
        };
        Ok(Respond { answer, path, answered: AtomicU64::new(0) })
    }

    fn report(&self) -> Vec<(String, String)> {
        vec![("requests answered".to_owned(), self.answered.load(Relaxed).to_string())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::http::testing::{answer_of, made, read_head};

    fn is_answered(args: &[&str], target: &str) -> bool {
        let mut message = read_head(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        answer_of(&made::<Respond>(args).unwrap(), &mut message) != L7Verdict::Pass
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
    fn errors_name_what_is_wrong() {
        for (args, named) in [
            (&[][..], "a status"),
            (&["99"], "`99`"),
            (&["600"], "`600`"),
            (&["204", "x"], "204 has no text"),
            (&["200", "path"], "a pattern"),
            (&["200", "a", "b"], "`b`"),
            (&["200", "path", "x"], "`x`"),
        ] {
            let error = made::<Respond>(args).err().unwrap().to_string();
            assert!(error.contains(named), "{args:?}: {error}");
        }
    }
}
