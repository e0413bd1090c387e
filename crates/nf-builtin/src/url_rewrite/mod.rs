//! `url-rewrite`: gives requests of a broker another path, or redirects their clients.
//!
//! The first rule whose expression matches path and query of the target counts. The code that matches and
//! replaces is that of `http-edit`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mmb_nf::{ArgError, L7Answer, L7Function, L7Handler, L7Request, L7Verdict, Setup};

use crate::http_edit::path::{Rewritten, Room, UriRewrite};

const USAGE: &str = "REGEX TEXT [redirect 301|302|303|307|308] …";
/// Most rules.
const MOST: usize = 256;

/// A rule.
struct Rule {
    rewrite: UriRewrite,
    /// The status of a redirect. None: the request goes on.
    redirect: Option<u16>,
}

/// See the module's documentation.
pub(crate) struct UrlRewrite {
    rules: Vec<Rule>,
    rewritten: AtomicU64,
    redirected: AtomicU64,
    refused: AtomicU64,
}

/// What a broker needs for searches.
pub(crate) struct Scratch {
    /// By rule.
    rooms: Vec<Room>,
    path: Vec<u8>,
}

impl L7Handler for UrlRewrite {
    type Local = Scratch;

    fn local(&self) -> Scratch {
        Scratch { rooms: self.rules.iter().map(|rule| rule.rewrite.room()).collect(), path: Vec::new() }
    }

    fn request(&self, request: &mut L7Request<'_>, scratch: &mut Scratch) -> L7Verdict {
        if !request.message.target().starts_with(b"/") {
            return L7Verdict::Pass;
        }
        let Scratch { rooms, path } = scratch;
        for (rule, room) in self.rules.iter().zip(rooms) {
            path.clear();
            match rule.rewrite.rewrite(request.message.target(), room, path) {
                Rewritten::No => continue,
                Rewritten::Refused => {
                    self.refused.fetch_add(1, Relaxed);
                    return L7Verdict::Pass;
                }
                Rewritten::Yes => {}
            }
            let Some(status) = rule.redirect else {
                self.rewritten.fetch_add(1, Relaxed);
                request.message.set_target(path);
                return L7Verdict::Pass;
            };
            self.redirected.fetch_add(1, Relaxed);
            return L7Verdict::Answer(redirect(status, path));
        }
        L7Verdict::Pass
    }
}

/// Returns the answer that sends a client to a path of the same host.
fn redirect(status: u16, path: &[u8]) -> L7Answer {
    // `//host` would be a path on another host (RFC 3986, 4.2).
    let slashes = path.iter().take_while(|&&byte| matches!(byte, b'/' | b'\\')).count();
    let behind = path.get(slashes..).unwrap_or(&[]);
    L7Answer { headers: [b"Location: /", behind, b"\r\n"].concat().into(), ..L7Answer::of_status(status) }
}

impl L7Function for UrlRewrite {
    const TYPE: &'static str = "url-rewrite";
    const USAGE: &'static str = USAGE;
    const HELP: &'static str = "gives requests of a broker another path, or redirects their clients";

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let (mut rules, mut words) = (Vec::new(), setup.args);
        while let [regex, rest @ ..] = words {
            let [text, rest @ ..] = rest else { return Err(ArgError::missing(regex, "the new text")) };
            words = rest;
            let mut redirect = None;
            if let ["redirect", rest @ ..] = words {
                let [status, rest @ ..] = rest else { return Err(ArgError::missing("redirect", "a status")) };
                let parsed = status.parse().ok().filter(|status| matches!(status, 301..=303 | 307 | 308));
                let wrong = || ArgError::invalid("status", status, "must be 301, 302, 303, 307 or 308");
                redirect = Some(parsed.ok_or_else(wrong)?);
                words = rest;
            }
            rules.push(Rule { rewrite: UriRewrite::of_paths(regex, text)?, redirect });
        }
        if rules.is_empty() || rules.len() > MOST {
            let example = "url-rewrite ^/old/(.*) /new/$1";
            return Err(format!("`url-rewrite` takes 1 to {MOST} rules: `{example}`").into());
        }
        let [rewritten, redirected, refused] = [0; 3].map(AtomicU64::new);
        Ok(UrlRewrite { rules, rewritten, redirected, refused })
    }

    fn report(&self) -> Vec<(String, String)> {
        let all = [
            ("paths rewritten", &self.rewritten),
            ("clients redirected", &self.redirected),
            ("paths not rewritten: the new one is invalid", &self.refused),
        ];
        let shown =
            all.into_iter().enumerate().filter(|(at, (_, count))| *at < 2 || count.load(Relaxed) != 0);
        shown.map(|(_, (name, count))| (name.to_owned(), count.load(Relaxed).to_string())).collect()
    }
}

#[cfg(test)]
mod tests;
