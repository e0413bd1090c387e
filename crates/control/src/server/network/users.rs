//! The users of the API on the network: what each proves its name with, and its role.
//!
//! Theory of operation. A file has one user in a line:
//!
//! ```text
//! read    grafana  token sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
//! admin   alice    certificate CN=alice,O=Example
//! ```
//!
//! A token is a random number of 256 bits. The file has its SHA-256 only, so that who reads the file cannot
//! use it. Against numbers of this size a slow hash adds nothing. All hashes are compared, each in constant
//! time. The subject of a certificate is written as in RFC 4514, which `openssl x509 -nameopt RFC2253`
//! prints.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::super::role::Role;

/// What a token begins with, so that tokens are found in logs and repositories.
const PREFIX: &str = "mmb_";
/// Bytes of a token.
const TOKEN: usize = 32;
/// Maximum number of users. Each request with a token is compared with all of them.
const MOST: usize = 1000;
/// Maximum length of a name in bytes.
const LONGEST_NAME: usize = 64;
/// What a hash begins with.
const ALGORITHM: &str = "sha256:";

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) struct User {
    pub name: Arc<str>,
    pub role: Role,
}

/// The users of a file.
#[derive(Debug, Default)]
pub(in crate::server) struct Users {
    /// SHA-256 of each token.
    tokens: Vec<([u8; 32], User)>,
    /// By subject.
    certificates: HashMap<String, User>,
}

impl Users {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The number of the first wrong line, and what is wrong.
    pub fn parse(text: &str) -> Result<Users, String> {
        let mut users = Users::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                users.add(line).map_err(|reason| format!("line {number}: {reason}"))?;
            }
        }
        Ok(users)
    }

    fn add<'a>(&mut self, line: &'a str) -> Result<(), String> {
        let form = || {
            format!("`{line}` is not `ROLE NAME token {ALGORITHM}HASH` or `ROLE NAME certificate SUBJECT`")
        };
        let next =
            |text: &'a str| text.split_once(char::is_whitespace).map(|(word, rest)| (word, rest.trim()));
        let (role, rest) = next(line).ok_or_else(form)?;
        let (name, rest) = next(rest).ok_or_else(form)?;
        let (kind, value) = next(rest).ok_or_else(form)?;
        if self.tokens.len() + self.certificates.len() >= MOST {
            return Err(format!("more than {MOST} users"));
        }
        let user = User { name: parse_name(name)?.into(), role: parse_role(role)? };
        match kind {
            "token" => {
                let hash = parse_hash(value)?;
                if self.tokens.iter().any(|(known, _)| *known == hash) {
                    return Err(format!("the token of `{name}` is in the file already"));
                }
                self.tokens.push((hash, user));
            }
            "certificate" => {
                if self.certificates.insert(value.to_owned(), user).is_some() {
                    return Err(format!("the subject `{value}` is in the file already"));
                }
            }
            other => return Err(format!("`{other}` is neither `token` nor `certificate`")),
        }
        Ok(())
    }

    /// Whether a user proves its name with a certificate.
    pub fn has_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// The user of a token.
    pub fn by_token(&self, token: &[u8]) -> Option<&User> {
        let hash = Sha256::digest(token);
        // The index of the match plus one: the time does not depend on where the match is.
        let mut found = 0u32;
        for (at, (known, _)) in (1u32..).zip(&self.tokens) {
            let is_equal: Choice = known.as_slice().ct_eq(hash.as_slice());
            found.conditional_assign(&at, is_equal);
        }
        self.tokens.get(usize::try_from(found.checked_sub(1)?).ok()?).map(|(_, user)| user)
    }

    /// The user of a certificate that a trusted authority has signed.
    pub fn by_subject(&self, subject: &str) -> Option<&User> {
        self.certificates.get(subject)
    }
}

/// A new token, and its line for the file of users.
///
/// # Errors
/// The name or the role is invalid, or the system gives no random numbers.
pub fn new_token(role: &str, name: &str) -> Result<(String, String), String> {
    let (role_word, name) = (role, parse_name(name)?);
    parse_role(role)?;
    let mut bytes = [0; TOKEN];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| "the system gives no random numbers".to_owned())?;
    let token = format!("{PREFIX}{}", hexadecimal(&bytes));
    let hash = hexadecimal(&Sha256::digest(token.as_bytes()));
    Ok((token, format!("{role_word} {name} token {ALGORITHM}{hash}\n")))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_role(word: &str) -> Result<Role, String> {
    match word {
        "read" => Ok(Role::Reader),
        "operate" => Ok(Role::Operator),
        "admin" => Ok(Role::Owner),
        _ => Err(format!("unknown role `{word}`: roles are read, operate and admin")),
    }
}

fn parse_name(word: &str) -> Result<&str, String> {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    match (1..=LONGEST_NAME).contains(&word.len()) && word.bytes().all(is_name_byte) {
        true => Ok(word),
        false => Err(format!(
            "invalid name `{word}`: a name has 1 to {LONGEST_NAME} letters, digits and characters of `._@-`"
        )),
    }
}

fn parse_hash(word: &str) -> Result<[u8; 32], String> {
    let invalid = || {
        format!(
            "invalid token `{word}`: the file has `{ALGORITHM}` and 64 hexadecimal digits, as `mmb token` writes"
        )
    };
    let digits = word.strip_prefix(ALGORITHM).ok_or_else(invalid)?;
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(invalid());
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| invalid())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_subjects_lead_to_their_users() {
        let (token, line) = new_token("operate", "ci").unwrap();
        assert!(token.len() == 68 && token.starts_with("mmb_") && !line.contains(&token));
        let (other, other_line) = new_token("read", "grafana").unwrap();
        assert_ne!(token, other);
        let text = format!("# users\n\n{line}{other_line}admin alice  certificate  CN=alice,O=Two Words\n");
        let users = Users::parse(&text).unwrap();
        assert_eq!(users.by_token(token.as_bytes()), Some(&User { name: "ci".into(), role: Role::Operator }));
        assert_eq!(users.by_token(other.as_bytes()).map(|user| user.role), Some(Role::Reader));
        let admin = User { name: "alice".into(), role: Role::Owner };
        assert_eq!(users.by_subject("CN=alice,O=Two Words"), Some(&admin));
        for wrong in ["", "mmb_", &token[1..], &token.to_uppercase(), &format!("{token} ")] {
            assert_eq!(users.by_token(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(users.by_subject("CN=alice"), None);
        // The hash is not a token.
        let hash = line.trim().rsplit(':').next().unwrap();
        assert_eq!(users.by_token(hash.as_bytes()), None);
        assert!(Users::default().by_token(b"").is_none());
    }

    #[test]
    fn hashes_are_those_of_sha256sum() {
        // printf foo | sha256sum
        let text = "read foo token sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae\n";
        assert!(Users::parse(text).unwrap().by_token(b"foo").is_some());
    }

    #[test]
    fn wrong_lines_are_named() {
        let hash = "0".repeat(64);
        for (text, message) in [
            ("read a\n".to_owned(), "line 1: `read a` is not `ROLE NAME token"),
            (format!("\nwrite a token sha256:{hash}"), "line 2: unknown role `write`"),
            (format!("read a/b token sha256:{hash}"), "invalid name `a/b`"),
            ("read a token secret".to_owned(), "invalid token `secret`"),
            (format!("read a token sha256:{}", "é".repeat(32)), "invalid token"),
            (format!("read a password sha256:{hash}"), "`password` is neither"),
            (format!("read a token sha256:{hash}\nread b token sha256:{hash}"), "line 2: the token of `b`"),
            ("read a certificate CN=a\nread b certificate CN=a".to_owned(), "the subject `CN=a`"),
        ] {
            let error = Users::parse(&text).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        let many: String = (0..=MOST).map(|n| format!("read u certificate CN={n}\n")).collect();
        assert_eq!(Users::parse(&many).unwrap_err(), "line 1001: more than 1000 users");
        assert!(new_token("root", "a").is_err() && new_token("read", "a b").is_err());
    }
}
