//! Words of nftables, iptables and VPP, and what says the same here.

/// Words in the place of a match or a target, in lower case.
const RULE_WORDS: &[(&str, &str)] = &[
    ("dport", "ports belong to a protocol: `tcp-dport`, `udp-dport`"),
    ("sport", "ports belong to a protocol: `tcp-sport`, `udp-sport`"),
    ("--dport", "ports belong to a protocol: `tcp-dport 80`, `udp-dport 53`"),
    ("--dports", "several ports are a set: `tcp-dport {80,443}`"),
    ("--sport", "ports belong to a protocol: `tcp-sport 80`, `udp-sport 53`"),
    ("saddr", "addresses belong to a family: `ip-saddr`, `ip6-saddr`"),
    ("daddr", "addresses belong to a family: `ip-daddr`, `ip6-daddr`"),
    ("src", "the source address is `ip-saddr` or `ip6-saddr`"),
    ("dst", "the destination address is `ip-daddr` or `ip6-daddr`"),
    ("-s", "the source address is `ip-saddr` or `ip6-saddr`"),
    ("-d", "the destination address is `ip-daddr` or `ip6-daddr`"),
    ("-p", "the protocol is `ip-proto tcp`, or `ip6-next tcp` for IPv6"),
    ("proto", "the protocol is `ip-proto tcp`, or `ip6-next tcp` for IPv6"),
    ("l4proto", "the protocol is `ip-proto tcp`, or `ip6-next tcp` for IPv6"),
    ("tcp", "a rule for TCP has `ip-proto tcp`, or a field of TCP: `tcp-dport 80`"),
    ("udp", "a rule for UDP has `ip-proto udp`, or a field of UDP: `udp-dport 53`"),
    ("icmp", "a rule for ICMP has `ip-proto icmp`, or a field of it: `icmp-type 8`"),
    ("ip", "a rule for IPv4 has `net-proto ip`, or a field of it: `ip-saddr 10.0.0.0/8`"),
    ("ip6", "a rule for IPv6 has `net-proto ip6`, or a field of it: `ip6-saddr 2001:db8::/32`"),
    ("-i", "the interface that packets come in by is `in <interface>`"),
    ("iif", "the interface that packets come in by is `in <interface>`"),
    ("iifname", "the interface that packets come in by is `in <interface>`"),
    ("-o", "the interface that packets leave by is `out <interface>`"),
    ("oif", "the interface that packets leave by is `out <interface>`"),
    ("oifname", "the interface that packets leave by is `out <interface>`"),
    ("-a", "a rule stands behind `add` by itself: `add tcp-dport 80 drop`"),
    ("-j", "the target stands by itself: `add tcp-dport 80 drop`"),
    ("-g", "the target stands by itself: `add tcp-dport 80 drop`"),
    ("jump", "rules have no order and no chains of rules: all that match apply"),
    ("goto", "rules have no order and no chains of rules: all that match apply"),
    ("return", "rules have no order and no chains of rules: `accept` beats `drop`"),
    ("-m", "matches stand by themselves: `tcp-dport 80`, `tcp-syn`"),
    ("meta", "matches stand by themselves: `in lan`, `ip-proto tcp`"),
    ("ct", "replies of sessions that `add-stateful … accept` opens pass by themselves"),
    ("state", "replies of sessions that `add-stateful … accept` opens pass by themselves"),
    ("--ctstate", "replies of sessions that `add-stateful … accept` opens pass by themselves"),
    ("established", "replies of sessions that `add-stateful … accept` opens pass by themselves"),
    ("masquerade", "`nat pool add p interface <interface>` and `add-stateful … nat p` masquerade"),
    ("snat", "source NAT is `add-stateful … nat <pool>` or `map ip-saddr <address>`"),
    ("dnat", "destination NAT is `add-stateful … map ip-daddr <address>` or `nat forward add`"),
    ("redirect", "destination NAT is `add-stateful … map tcp-dport <port>`"),
    ("ruleset", "`list` alone shows all rules, `show config` the whole configuration"),
    ("rules", "`list` alone shows all rules"),
    ("counter", "every rule counts: `list` shows it"),
    ("permit", "the target is `accept`"),
    ("allow", "the target is `accept`"),
    ("deny", "the target is `drop`, or `block` if nothing may accept the packet"),
];

/// Words behind `show`, in lower case.
const SUBJECTS: &[(&str, &str)] = &[
    ("error", "`show drops` counts dropped packets by reason, `show runtime` packets by node"),
    ("errors", "`show drops` counts dropped packets by reason, `show runtime` packets by node"),
    ("trace", "`trace` shows the path of the next packets"),
    ("capture", "`capture` shows or records packets"),
    ("history", "`history` shows who changed what"),
    ("rules", "`list` shows the rules"),
    ("rule", "`list` shows the rules"),
    ("ruleset", "`list` shows the rules, `show config` the whole configuration"),
    ("acl", "`list` shows the rules"),
    ("policy", "`list` shows the rules"),
    ("counters", "`list` shows the counters of rules, `show interfaces` those of interfaces"),
    ("statistics", "`show interfaces` counts packets and bytes, `show drops` dropped packets by reason"),
    ("stats", "`show interfaces` counts packets and bytes, `show drops` dropped packets by reason"),
    ("sessions", "`show connections` shows the sessions"),
    ("session", "`show connections` shows the sessions"),
    ("flows", "`show connections` shows the sessions"),
    ("conntrack", "`show connections` shows the sessions"),
    ("nat44", "`show nat` shows pools and forwards, `show connections` the translated sessions"),
    ("ip", "`show fib` shows the routes, `show neighbors` the neighbors"),
    ("ip6", "`show fib` shows the routes, `show neighbors` the neighbors"),
    ("route", "`show fib` shows the routes"),
    ("routes", "`show fib` shows the routes"),
    ("arp", "`show neighbors` shows the neighbors"),
    ("hardware", "`show interfaces verbose` shows the interfaces with their drivers"),
    ("hardware-interfaces", "`show interfaces verbose` shows the interfaces with their drivers"),
    ("threads", "`show runtime` shows the workers"),
    ("workers", "`show runtime` shows the workers"),
    ("node", "`show runtime` shows the nodes of the graph"),
    ("running-config", "`show config` shows the running configuration"),
    ("configuration", "`show config` shows the running configuration"),
    ("log", "lines of `log` are in the journal of the daemon, or where `set log-to` sends them"),
    ("logging", "lines of `log` are in the journal of the daemon, or where `set log-to` sends them"),
];

/// Words in the place of a command, in lower case.
const COMMANDS: &[(&str, &str)] = &[
    ("-a", "a rule is added by `add`: `add tcp-dport 80 drop`"),
    ("-i", "a rule is added by `add`: `add tcp-dport 80 drop`"),
    ("append", "a rule is added by `add`: `add tcp-dport 80 drop`"),
    ("insert", "rules have no order: `add` adds them"),
    ("-l", "`list` shows the rules"),
    ("-s", "`show config` shows the configuration as a file"),
    ("-d", "a rule is deleted by `del <index>` or `del <name>`"),
    ("delete", "a rule is deleted by `del <index>` or `del <name>`"),
    ("-f", "`flush` deletes all rules"),
    ("-p", "a default policy is a rule: `add all drop`"),
    ("policy", "a default policy is a rule: `add all drop`"),
    ("rule", "a rule is added by `add`: `add tcp-dport 80 drop`"),
    ("table", "there are no tables of rules: all rules that match apply"),
    ("ip", "addresses and routes are those of the kernel: `show fib`, `show neighbors`"),
    ("acl", "a rule is added by `add`: `add tcp-dport 80 drop`"),
    ("create", "an interface is added by `interface add <name> <kind>`"),
    ("no", "what one command adds, its `del` deletes: `del 1`, `interface del left`"),
    ("configure", "there are no modes: a command takes effect when it returns, `apply` changes all at once"),
    ("commit", "a command takes effect when it returns; `apply --confirm 60s FILE` can be taken back"),
    ("undo", "`rollback` returns to the configuration before the last change"),
    ("write", "`save` writes the running configuration to a file"),
    ("reload", "`apply FILE` makes a file the configuration"),
    ("restore", "`apply FILE` makes a file the configuration"),
    ("export", "`show config` and `save FILE` write the running configuration"),
    ("monitor", "`trace` and `capture` show packets, `mmb top` all rates"),
    ("tcpdump", "`capture` shows or records packets"),
    ("conntrack", "`show connections` shows the sessions, `clear connections` ends them"),
    ("status", "`mmb top` and `show interfaces` show the state, `mmb doctor` checks the machine"),
    ("ls", "`list` shows the rules"),
    ("iptables", "`iptables-save | mmb import iptables-save -` converts rules"),
    ("nft", "`nft -j list ruleset | mmb import nft -` converts rules"),
];

/// What says here what `word` says elsewhere, behind `show`.
pub(crate) fn as_subject(word: &str) -> Option<&'static str> {
    find(SUBJECTS, word)
}

/// What says here what `word` says elsewhere, in the place of a match or a target.
pub fn in_rules(word: &str) -> Option<&'static str> {
    find(RULE_WORDS, word)
}

/// What says here what `word` says elsewhere, in the place of a command.
pub fn as_command(word: &str) -> Option<&'static str> {
    find(COMMANDS, word)
}

fn find(table: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, help)| *help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_are_no_words_of_the_language() {
        for (word, _) in RULE_WORDS {
            assert!(!crate::keyword::is_reserved(word), "{word}");
        }
        for (word, _) in COMMANDS {
            assert!(crate::keyword::COMMANDS.iter().all(|command| command.word != *word), "{word}");
        }
        for (word, _) in SUBJECTS {
            let error = crate::parse_line(&format!("show {word}")).unwrap_err();
            assert_eq!(error.help.as_deref(), as_subject(word), "{word}");
        }
        for table in [RULE_WORDS, SUBJECTS, COMMANDS] {
            let repeats = |word: &str| table.iter().filter(|(other, _)| *other == word).count() > 1;
            assert!(table.iter().all(|(word, _)| !repeats(word)));
        }
    }
}
