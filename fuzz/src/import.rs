//! Properties of imports for any input. The fuzz target `import` runs them on the fuzzer's bytes. A test of
//! the crate runs them on the corpus and on mutated seeds.
//!
//! * The first byte selects the format; the rest is the input, as text. No input panics.
//! * The result is a configuration: every line parses, and rules stand in their canonical form.
//! * Remarks and comments have no control characters.

use mmb_import::{Machine, Script, from_classbench, from_ipset, from_iptables, from_nft};
use mmb_lang::{Command, check as check_rule, parse_line};

/// Maximum length of an input in bytes.
const LONGEST: usize = 1 << 16;

/// Panics if a property does not hold for `bytes`.
pub fn check(bytes: &[u8]) {
    let Some((format, text)) = bytes.split_first().filter(|(_, text)| text.len() <= LONGEST) else { return };
    let text = String::from_utf8_lossy(text);
    let chain = [None, Some("INPUT"), Some("c1")][usize::from(format >> 2) % 3];
    let known = Machine { outside: Some("eth0".to_owned()), addresses: vec![[192, 0, 2, 1].into()] };
    let machine = if format & 0x40 == 0 { Machine::default() } else { known };
    let script = match format & 3 {
        0 => from_iptables(&text, chain, &machine),
        1 | 2 => from_nft(&text, chain, &machine),
        _ if *format >= 0x80 => Ok(from_ipset(&text)),
        _ => Ok(from_classbench(&text, "drop")),
    };
    match script {
        Ok(script) => check_script(&script),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_script(script: &Script) {
    for line in script.text().lines() {
        assert!(!line.contains(char::is_control), "{line:?}");
        match parse_line(line) {
            Ok(None) => {}
            Ok(Some(Command::Add(rule))) => {
                assert_eq!(rule.to_string(), line);
                assert!(check_rule(&rule).is_ok(), "{line}");
            }
            Ok(Some(
                other @ (Command::SetAdd(_)
                | Command::ElementAdd(_)
                | Command::NatPoolAdd(_)
                | Command::NatForwardAdd(_)
                | Command::SetTcpWindowCheck(true)),
            )) => assert_eq!(other.to_string(), line),
            other => panic!("{line}: {other:?}"),
        }
    }
    for remark in script.remarks() {
        assert!(!remark.reason.is_empty() && !remark.place.is_empty(), "{remark:?}");
    }
}
