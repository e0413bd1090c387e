//! The lexer: words, operators and quoted texts of a line.

use crate::ast::Cond;
use crate::span::Span;

/// The type of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tok {
    /// A word without blanks, operators and quotes.
    Word,
    /// `"…"`.
    Text,
    /// `"…` without a closing quote.
    OpenText,
    /// A comparison.
    Cond(Cond),
    /// A single `=`.
    Assign,
    /// `!`.
    Bang,
    /// `{`.
    Open,
    /// `}`.
    Close,
    /// `,`.
    Comma,
    /// `|`. This and the following only in chains.
    Pipe,
    /// `[`.
    OpenArms,
    /// `]`.
    CloseArms,
    /// `:`.
    Colon,
    /// The end of the line, or a comment. The span is empty and lies after the last token.
    End,
}

/// A token and its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub tok: Tok,
    pub span: Span,
}

/// The lexer, with one token of lookahead.
#[derive(Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    token: Token,
    /// End of the previous token.
    last_end: usize,
    /// Whether the line is a service chain, which has operators of its own.
    chain: bool,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut lexer =
            Self { text, token: Token { tok: Tok::End, span: Span::default() }, last_end: 0, chain: false };
        lexer.token = lexer.scan(0);
        lexer
    }

    /// The current token.
    pub(crate) fn peek(&self) -> Token {
        self.token
    }

    /// Returns the current token and advances.
    pub(crate) fn next(&mut self) -> Token {
        let token = self.token;
        self.last_end = token.span.end;
        self.token = self.scan(token.span.end);
        token
    }

    /// The text of a span.
    pub(crate) fn text(&self, span: Span) -> &'a str {
        &self.text[span.start..span.end]
    }

    /// End of the previous token.
    pub(crate) fn last_end(&self) -> usize {
        self.last_end
    }

    /// The text of the token after the current one; empty at the end of the line.
    pub(crate) fn following(&self) -> &'a str {
        self.text(self.scan(self.token.span.end).span)
    }

    /// Returns everything from the current token to the next blank as one word, and advances. Must not be
    /// called at the end of the line.
    pub(crate) fn next_unbroken(&mut self) -> Span {
        let start = self.token.span.start;
        let length = self.text[start..].find(|c: char| c.is_ascii_whitespace());
        let end = length.map_or(self.text.len(), |length| start + length);
        self.last_end = end;
        self.token = self.scan(end);
        Span::new(start, end)
    }

    /// Makes `|`, `[`, `]` and `:` operators, from the current token on.
    pub(crate) fn enter_chain(&mut self) {
        self.chain = true;
        self.token = self.scan(self.last_end);
    }

    /// Whether a colon follows the current token.
    pub(crate) fn colon_follows(&self) -> bool {
        self.scan(self.token.span.end).tok == Tok::Colon
    }

    fn scan(&self, from: usize) -> Token {
        let bytes = self.text.as_bytes();
        let blank = |byte: &&u8| byte.is_ascii_whitespace();
        let start = from + bytes[from..].iter().take_while(blank).count();
        let follows = |byte| bytes.get(start + 1) == Some(&byte);
        let (tok, length) = match bytes.get(start) {
            None | Some(b'#') => return Token { tok: Tok::End, span: Span::new(from, from) },
            Some(b'!') if follows(b'=') => (Tok::Cond(Cond::Ne), 2),
            Some(b'!') => (Tok::Bang, 1),
            Some(b'=') if follows(b'=') => (Tok::Cond(Cond::Eq), 2),
            Some(b'=') => (Tok::Assign, 1),
            Some(b'<') if follows(b'=') => (Tok::Cond(Cond::Le), 2),
            Some(b'<') => (Tok::Cond(Cond::Lt), 1),
            Some(b'>') if follows(b'=') => (Tok::Cond(Cond::Ge), 2),
            Some(b'>') => (Tok::Cond(Cond::Gt), 1),
            Some(b'{') => (Tok::Open, 1),
            Some(b'}') => (Tok::Close, 1),
            Some(b',') => (Tok::Comma, 1),
            Some(b'"') => quoted(&bytes[start..]),
            Some(b'|') if self.chain => (Tok::Pipe, 1),
            Some(b'[') if self.chain => (Tok::OpenArms, 1),
            Some(b']') if self.chain => (Tok::CloseArms, 1),
            Some(b':') if self.chain => (Tok::Colon, 1),
            Some(_) => (Tok::Word, self.word(&bytes[start..])),
        };
        Token { tok, span: Span::new(start, start + length) }
    }

    /// Length of the word at the start of the bytes.
    fn word(&self, bytes: &[u8]) -> usize {
        let of_chain = |byte: u8| ends_word(byte) || b"|[]:".contains(&byte);
        match self.chain {
            // Fast path: files may have a million rules.
            false => bytes.iter().take_while(|byte| !ends_word(**byte)).count(),
            true => bytes.iter().take_while(|byte| !of_chain(**byte)).count(),
        }
    }
}

fn ends_word(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"!<>={},\"".contains(&byte)
}

/// Type and length of the quoted text at the start of `bytes`. A backslash escapes the next byte.
fn quoted(bytes: &[u8]) -> (Tok, usize) {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return (Tok::Text, at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    (Tok::OpenText, bytes.len())
}

/// The bytes of a [`Tok::Text`]. Escapes: `\"`, `\\`, `\n`, `\r`, `\t`, `\0` and `\xHH`.
///
/// # Errors
/// The offset of an invalid backslash in `raw`.
pub(crate) fn unquote(raw: &str) -> Result<Vec<u8>, usize> {
    let bytes = raw.as_bytes();
    let inner = bytes.len().saturating_sub(1);
    let mut out = Vec::with_capacity(inner);
    let mut at = 1;
    while at < inner {
        let (byte, length) = match bytes[at] {
            b'\\' => escape(&bytes[at + 1..inner]).ok_or(at)?,
            byte => (byte, 1),
        };
        out.push(byte);
        at += length;
    }
    Ok(out)
}

/// The byte of an escape, and the length of the escape with its backslash.
fn escape(rest: &[u8]) -> Option<(u8, usize)> {
    Some(match rest {
        [b @ (b'"' | b'\\'), ..] => (*b, 2),
        [b'n', ..] => (b'\n', 2),
        [b'r', ..] => (b'\r', 2),
        [b't', ..] => (b'\t', 2),
        [b'0', ..] => (0, 2),
        [b'x', high, low, ..] => (hex_digit(*high)? << 4 | hex_digit(*low)?, 4),
        _ => return None,
    })
}

/// The value of a hexadecimal digit.
pub(crate) fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The text in quotes. [`unquote`] returns the same bytes.
pub(crate) fn quote_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let mut buffer = [0; 4];
                out.extend(c.encode_utf8(&mut buffer).bytes().map(|byte| format!("\\x{byte:02x}")));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests;
