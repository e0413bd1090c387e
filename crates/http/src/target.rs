//! The host and the path that a request is for (RFC 9112, 3.2 and 3.3).

use crate::Cause;
use crate::table::{self, HOST};

/// Host and path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'h> {
    /// The host without port. Letters have the case that the client has sent. Empty: the request has none.
    pub host: &'h [u8],
    /// The host with its port, as the client has sent it. Empty: the request has none.
    pub authority: &'h [u8],
    /// Path and query. `*` for OPTIONS of a whole server, the authority for CONNECT.
    pub path: &'h [u8],
}

impl<'h> Target<'h> {
    fn of(authority: &'h [u8], path: &'h [u8]) -> Target<'h> {
        Target { host: name_of(authority), authority, path }
    }

    /// Reads method, target and the Host header of a request.
    ///
    /// # Errors
    /// Target or Host is malformed, or they name different hosts.
    pub fn read(method: &[u8], target: &'h [u8], host: Option<&'h [u8]>) -> Result<Target<'h>, Cause> {
        let host = host.unwrap_or_default();
        if table::run(host, HOST) != host.len() {
            return Err(Cause::Host);
        }
        if method == b"CONNECT" {
            if table::run(target, HOST) != target.len() || !target.contains(&b':') {
                return Err(Cause::Target);
            }
            return same(target, host, b"").map(|()| Target::of(target, target));
        }
        match target {
            [b'/', ..] => return Ok(Target::of(host, target)),
            b"*" if method == b"OPTIONS" => return Ok(Target::of(host, target)),
            _ => {}
        }
        let at = target.windows(3).position(|three| three == b"://").ok_or(Cause::Target)?;
        let (scheme, behind) = (&target[..at], &target[at + 3..]);
        let default: &[u8] = match scheme {
            scheme if scheme.eq_ignore_ascii_case(b"http") => b":80",
            scheme if scheme.eq_ignore_ascii_case(b"https") => b":443",
            _ => return Err(Cause::Target),
        };
        let end = behind.iter().position(|byte| b"/?".contains(byte)).unwrap_or(behind.len());
        let (authority, path) = behind.split_at(end);
        if authority.is_empty() || table::run(authority, HOST) != end {
            return Err(Cause::Target);
        }
        same(authority, host, default)?;
        let path = if path.is_empty() { b"/" } else { path };
        Ok(Target::of(authority, path))
    }
}

/// Returns a host without its port, and without a dot at its end.
fn name_of(host: &[u8]) -> &[u8] {
    let from = host.iter().rposition(|&byte| byte == b']').unwrap_or(0);
    let end = host[from..].iter().position(|&byte| byte == b':').map_or(host.len(), |at| from + at);
    let name = &host[..end];
    name.strip_suffix(b".").unwrap_or(name)
}

/// The authority of a target has to be that of the Host header, if there is one.
fn same(authority: &[u8], host: &[u8], default: &[u8]) -> Result<(), Cause> {
    let [authority, name] = [authority, host].map(|one| one.strip_suffix(default).unwrap_or(one));
    let is_same = host.is_empty() || authority.eq_ignore_ascii_case(name);
    if is_same { Ok(()) } else { Err(Cause::HostMismatch) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, target: &str, host: &str) -> Result<(String, String), Cause> {
        let read = Target::read(method.as_bytes(), target.as_bytes(), Some(host.as_bytes()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(read.host), text(read.path)))
    }

    #[test]
    fn forms_of_targets() {
        for (method, target, host, name, path) in [
            ("GET", "/a?b", "a.example:8080", "a.example", "/a?b"),
            ("GET", "/", "[2001:db8::1]:80", "[2001:db8::1]", "/"),
            ("GET", "/", "a.example.", "a.example", "/"),
            ("GET", "http://a.example/x", "A.example:80", "a.example", "/x"),
            ("GET", "HTTPS://a.example:443", "a.example", "a.example", "/"),
            ("GET", "http://a.example?q", "", "a.example", "?q"),
            ("OPTIONS", "*", "a", "a", "*"),
            ("CONNECT", "a.example:443", "a.example:443", "a.example", "a.example:443"),
        ] {
            assert_eq!(read(method, target, host), Ok((name.into(), path.into())), "{target}");
        }
    }

    #[test]
    fn an_authority_has_its_port() {
        let authority =
            |target, host| Target::read(b"GET", target, Some(host)).map(|target| target.authority.to_vec());
        for (target, host, expected) in [
            (&b"/"[..], &b"a.example:8080"[..], &b"a.example:8080"[..]),
            (b"/", b"", b""),
            (b"http://a.example:81/x", b"a.example:81", b"a.example:81"),
            (b"http://a.example:81", b"", b"a.example:81"),
        ] {
            assert_eq!(authority(target, host).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_two_servers_may_understand_differently_is_refused() {
        for (method, target, host, cause) in [
            ("GET", "http://a.example/", "b.example", Cause::HostMismatch),
            ("GET", "http://a.example:81/", "a.example", Cause::HostMismatch),
            ("CONNECT", "a:443", "b:443", Cause::HostMismatch),
            ("CONNECT", "/", "a", Cause::Target),
            ("GET", "*", "a", Cause::Target),
            ("GET", "a.example:80", "a.example", Cause::Target),
            ("GET", "ftp://a/", "a", Cause::Target),
            ("GET", "http:///x", "", Cause::Target),
            ("GET", "http://u@a/", "a", Cause::Target),
            ("GET", "/", "a, b", Cause::Host),
            ("GET", "/", "a/b", Cause::Host),
            ("GET", "/", "u@a", Cause::Host),
        ] {
            assert_eq!(read(method, target, host), Err(cause), "{method} {target} {host}");
        }
    }
}
