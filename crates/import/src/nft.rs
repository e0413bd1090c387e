//! The output of `nft -j list ruleset`: one base chain, and the chains that it jumps to.
//!
//! The format is libnftables-json(5). A rule is a list of statements: matches select packets, a verdict
//! decides. A verdict map becomes one rule per element. Chains for NAT translate what the chain filters.

mod error;
mod expression;
mod sets;
mod translation;

use std::collections::{BTreeSet, HashMap};

use mmb_lang::FieldId;
use serde_json::Value;

use self::error::ExpressionError;
use self::expression::{Sets, TableSets, narrow, narrow_by};
use self::sets::SetLines;
use crate::filter::{Filter, IP4, IP6, Values};
use crate::nat::{self, Machine, Translations};
use crate::ordered::{self, Chains, OTHER_ANSWER, Policy, Step, Verdict};
use crate::script::{Kind, Script};

/// Why the input is not a usable output of `nft -j list ruleset`.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The input is not JSON.
    #[error("not the output of `nft -j list ruleset`, which is JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The document has no list `nftables`.
    #[error("not the output of `nft -j list ruleset`")]
    NotARuleset,
    /// There is no such base chain.
    #[error("there is no base chain {chain}")]
    NoChain {
        /// Name of the chain.
        chain: String,
    },
    /// No base chain filters forwarded or received packets.
    #[error("there is no filter chain with the hook forward or input; --chain NAME selects another")]
    NoFilterChain,
    /// The family of the chain's table is not supported.
    #[error("tables of the family {family} are not converted")]
    UnsupportedFamily {
        /// Name of the family.
        family: String,
    },
}

/// A base chain.
#[derive(Default)]
struct Base {
    /// Family and name of the table, and name of the chain.
    path: String,
    name: String,
    hook: String,
    kind: String,
    priority: i64,
    drops: bool,
}

impl Base {
    /// The family of the table.
    fn family(&self) -> &str {
        self.path.split(' ').next().unwrap_or_default()
    }

    /// `FAMILY/TABLE/CHAIN`.
    fn full_name(&self) -> String {
        self.path.replace(' ', "/")
    }

    /// Whether it has the name `CHAIN`, `TABLE/CHAIN` or `FAMILY/TABLE/CHAIN`.
    fn is_named(&self, wanted: &str) -> bool {
        let full = self.full_name();
        let in_table = full.split_once('/').is_some_and(|(_, in_table)| in_table == wanted);
        self.name == wanted || in_table || full == wanted
    }

    /// Whether its rules translate addresses of forwarded packets.
    fn is_for_nat(&self) -> bool {
        self.kind == "nat" && matches!(self.hook.as_str(), "prerouting" | "postrouting")
    }
}

/// A ruleset.
struct Ruleset<'a> {
    machine: &'a Machine,
    sets: Sets,
    /// The sets that stay sets.
    named: HashMap<String, SetLines>,
    bases: Vec<Base>,
    chains: Chains,
    /// Number of rules in each chain.
    rules: HashMap<String, usize>,
}

/// Converts the rules of a chain, and translations.
///
/// # Errors
/// See [`NftError`].
pub fn convert(
    text: &str,
    chain: Option<&str>,
    machine: &Machine,
    script: &mut Script,
) -> Result<(), NftError> {
    let document: Value = serde_json::from_str(text)?;
    let Some(objects) = document["nftables"].as_array() else {
        return Err(NftError::NotARuleset);
    };
    let (sets, named, bases, chains, rules) = Default::default();
    let mut ruleset = Ruleset { machine, sets, named, bases, chains, rules };
    for object in objects {
        ruleset.declare(object);
    }
    for rule in objects.iter().filter_map(|object| object.get("rule")) {
        ruleset.rule(rule);
    }
    ruleset.write(chain, script)
}

/// Family and name of the table of an object.
fn table(object: &Value) -> String {
    let word = |key: &str| object[key].as_str().unwrap_or_default();
    format!("{} {}", word("family"), word("table"))
}

/// Family, table and name of a chain or a set: its key in the ruleset.
fn path(object: &Value, name: &str) -> String {
    format!("{} {name}", table(object))
}

impl Ruleset<'_> {
    fn declare(&mut self, object: &Value) {
        if let Some(set) = object.get("set")
            && let Some(lines) = SetLines::of(set)
            && !self.named.values().any(|other| other.name == lines.name)
        {
            self.named.insert(path(set, &lines.name), lines);
        }
        if let Some(set) = object.get("set").or_else(|| object.get("map")) {
            let name = path(set, set["name"].as_str().unwrap_or_default());
            self.sets.insert(name, set["elem"].as_array().cloned().unwrap_or_default());
        }
        let Some(chain) = object.get("chain") else { return };
        let word = |key: &str| chain[key].as_str().unwrap_or_default().to_owned();
        let path = path(chain, &word("name"));
        self.chains.entry(path.clone()).or_default();
        if chain.get("hook").is_some() {
            self.bases.push(Base {
                path,
                name: word("name"),
                hook: word("hook"),
                kind: word("type"),
                priority: chain["prio"].as_i64().unwrap_or(0),
                drops: word("policy") == "drop",
            });
        }
    }

    fn rule(&mut self, rule: &Value) {
        let chain = path(rule, rule["chain"].as_str().unwrap_or_default());
        let place = format!("{chain} handle {}", rule["handle"]);
        let statements = rule["expr"].as_array().map_or(&[][..], Vec::as_slice);
        let source = Value::from(statements.to_vec()).to_string();
        *self.rules.entry(chain.clone()).or_default() += 1;
        let mut reader = Reader { ruleset: self, rule, place: &place, source: &source, steps: Vec::new() };
        if let Err(error) = reader.read(statements) {
            reader.steps.clear();
            reader.remark(Kind::NotMapped, &error.to_string());
            if statements.iter().any(|statement| reader.returns(statement)) {
                reader.step(Vec::new(), Verdict::UnknownReturn);
            }
        }
        let steps = reader.steps;
        self.chains.entry(chain).or_default().extend(steps);
    }

    /// The base chain with a name. By default the first filter with the hook `forward`, else `input`.
    fn base(&self, chain: Option<&str>) -> Result<&Base, NftError> {
        let at = |hook: &str| {
            let all = self.bases.iter().filter(|base| base.hook == hook && base.kind == "filter");
            all.filter(|base| self.decides(base)).min_by_key(|base| base.priority)
        };
        match chain {
            Some(wanted) => {
                let found = self.bases.iter().find(|base| base.is_named(wanted));
                found.ok_or_else(|| NftError::NoChain { chain: wanted.to_owned() })
            }
            None => at("forward").or_else(|| at("input")).ok_or(NftError::NoFilterChain),
        }
    }

    fn rules_of(&self, base: &Base) -> usize {
        self.rules.get(&base.path).copied().unwrap_or(0)
    }

    /// Whether it does anything with packets: it has rules, or drops all.
    fn decides(&self, base: &Base) -> bool {
        base.drops || self.rules_of(base) > 0
    }

    fn write(self, chain: Option<&str>, script: &mut Script) -> Result<(), NftError> {
        let only_nat = || Base { hook: "forward".into(), ..Base::default() };
        let translates =
            || self.nat_bases("prerouting").chain(self.nat_bases("postrouting")).next().is_some();
        let base = match self.base(chain) {
            Ok(base) if chain.is_some() || base.hook == "forward" || !translates() => base,
            Ok(_) | Err(NftError::NoFilterChain) if translates() => &only_nat(),
            other => other?,
        };
        let family = match base.family() {
            "ip" => Filter::of(FieldId::NetProto, Values::one(IP4)),
            "ip6" => Filter::of(FieldId::NetProto, Values::one(IP6)),
            "inet" | "" => Some(Filter::default()),
            family => return Err(NftError::UnsupportedFamily { family: family.to_owned() }),
        };
        let policy = if base.drops { "drop" } else { "accept" };
        match base.path.as_str() {
            "" => script.comment("no chain filters forwarded packets"),
            path => script.comment(format!("chain {path}, hook {}, policy {policy}", base.hook)),
        }
        let others = self.others(base, script);
        self.write_sets(script);
        let (nat, total) = self.translations(base, script);
        script.set_total(total + others + ordered::count_rules(&self.chains, &[&base.path]));
        let policy = Policy { filter: family.unwrap_or_default(), drops: base.drops };
        ordered::convert(&self.chains, &base.path, &policy, &nat, script);
        Ok(())
    }

    /// The chains for NAT with a hook that have rules, in their order.
    fn nat_bases(&self, hook: &str) -> impl Iterator<Item = &Base> {
        let mut all: Vec<&Base> =
            self.bases.iter().filter(|base| base.kind == "nat" && base.hook == hook).collect();
        all.retain(|base| self.rules_of(base) > 0);
        all.sort_by_key(|base| base.priority);
        all.into_iter()
    }

    /// Remarks on the other base chains that decide. Returns the number of their rules and policies that are
    /// about forwarded packets.
    fn others(&self, base: &Base, script: &mut Script) -> usize {
        let mut total = 0;
        for other in self.bases.iter().filter(|other| other.path != base.path && self.decides(other)) {
            let Base { path, hook, .. } = other;
            let rules = self.rules_of(other);
            let policy = if other.drops { ", policy drop" } else { "" };
            let converts = format!("--chain {} converts this one", self.short_name(other));
            let is_of_machine = matches!(hook.as_str(), "input" | "output");
            if is_of_machine || base.hook != "forward" {
                let reason = match is_of_machine {
                    true => "packets of the machine itself stay with the packet filter of its kernel",
                    false => "one base chain is converted",
                };
                let source = format!("rules: {rules}, hook {hook}{policy}");
                script.remark(Kind::Note, path, &source, format!("{reason}; {converts}"));
            } else if !other.is_for_nat() {
                total += rules.max(1);
                let source = format!("rules: {rules}{policy}");
                script.skip_chain(path, rules, &source, format!("one base chain is converted; {converts}"));
            } else if other.drops {
                total += 1;
                let reason = "it is the policy of a chain for NAT: filter in the chain of forwarded packets";
                script.remark(Kind::NotMapped, path, "policy drop", reason);
            }
        }
        total
    }

    /// The name of a base chain, or `FAMILY/TABLE/CHAIN` if others have the same name.
    fn short_name(&self, base: &Base) -> String {
        let is_unique = self.bases.iter().filter(|other| other.name == base.name).count() == 1;
        if is_unique { base.name.clone() } else { base.full_name() }
    }

    /// Writes the named sets that rules refer to.
    fn write_sets(&self, script: &mut Script) {
        let steps = self.chains.values().flatten();
        let members = steps.flat_map(|step| &step.filters).flat_map(Filter::members);
        let used: BTreeSet<&str> = members.map(|member| member.set.as_str()).collect();
        let mut all: Vec<_> = self.named.iter().filter(|(_, set)| used.contains(set.name.as_str())).collect();
        all.sort_by_key(|(path, _)| *path);
        for (path, set) in all {
            script.comment(format!("set {path}"));
            set.lines.iter().for_each(|line| _ = script.line(line, path, line));
        }
    }

    /// Writes the translations for a chain, and returns how many rules they have.
    fn translations(&self, base: &Base, script: &mut Script) -> (Translations, usize) {
        if base.hook != "forward" {
            return Default::default();
        }
        // Those of IPv4 are converted with the chain for IPv4, if there is one.
        let is_ip4 = |other: &Base| other.family() == "ip";
        let is_filter = |other: &&Base| other.hook == base.hook && other.kind == "filter";
        let has_ip4 = self.bases.iter().filter(is_filter).any(|other| is_ip4(other) && self.decides(other));
        let is_about = |other: &&Base| !(base.family() == "ip6" && has_ip4 && is_ip4(other));
        let [before, behind] = ["prerouting", "postrouting"].map(|hook| {
            let all = self.nat_bases(hook).filter(is_about);
            all.map(|base| base.path.clone()).collect::<Vec<_>>()
        });
        let all: Vec<&str> = before.iter().chain(&behind).map(String::as_str).collect();
        let total = ordered::count_rules(&self.chains, &all);
        (nat::convert(&self.chains, &before, &behind, self.machine, script), total)
    }
}

/// A rule whose statements are being read.
struct Reader<'a> {
    ruleset: &'a Ruleset<'a>,
    rule: &'a Value,
    place: &'a str,
    source: &'a str,
    steps: Vec<Step>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, statements: &[Value]) -> Result<(), ExpressionError> {
        let mut filters = match self.rule["family"].as_str() {
            Some("ip") => Filter::of(FieldId::NetProto, Values::one(IP4)).into_iter().collect(),
            Some("ip6") => Filter::of(FieldId::NetProto, Values::one(IP6)).into_iter().collect(),
            Some("inet") => vec![Filter::default()],
            family => {
                let family = family.unwrap_or_default().to_owned();
                return Err(ExpressionError::UnsupportedFamily { family });
            }
        };
        let (sets, mut logs, mut is_limited) = (self.sets(), false, false);
        for statement in statements {
            if let Some(test) = statement.get("match") {
                if is_loopback(test) {
                    self.note("packets of the loopback interface do not pass mmb");
                    return Ok(());
                }
                filters = narrow(filters, test, &sets)?;
            } else if let Some(map) = statement.get("vmap") {
                return if is_limited { Err(ExpressionError::Limited) } else { self.map(filters, map) };
            } else if statement.get("limit").is_some() {
                is_limited = true;
                self.note("a rule logs twenty packets at once, and ten a second");
            } else if let Some(log) = statement.get("log") {
                logs = true;
                let prefix = log["prefix"].as_str().and_then(ordered::log_prefix);
                self.step(filters.clone(), Verdict::Log(prefix));
            } else if let Some(verdict) = self.verdict(statement)? {
                if is_limited {
                    return Err(ExpressionError::Limited);
                }
                self.decide(filters, verdict, statement);
                return Ok(());
            }
        }
        if !logs {
            self.note("it has no verdict");
        }
        Ok(())
    }

    fn sets(&self) -> TableSets<'a> {
        let Ruleset { machine, sets: all, named, .. } = self.ruleset;
        TableSets { all, named, table: table(self.rule), machine }
    }

    fn note(&mut self, reason: &str) {
        self.remark(Kind::Note, reason);
    }

    fn remark(&mut self, kind: Kind, reason: &str) {
        self.step(Vec::new(), Verdict::Remark(kind, reason.to_owned()));
    }

    fn step(&mut self, filters: Vec<Filter>, verdict: Verdict) {
        let (place, source) = (self.place.to_owned(), self.source.to_owned());
        self.steps.push(Step { filters, verdict, place, source });
    }

    /// Adds a step that decides. Packets do not come back from the target of `goto`.
    fn decide(&mut self, filters: Vec<Filter>, verdict: Verdict, statement: &Value) {
        if filters.is_empty() {
            return self.note("no packet of mmb has such a state or such addresses");
        }
        self.step(filters.clone(), verdict);
        if statement.get("goto").is_some() {
            self.step(filters, Verdict::Return);
        }
    }

    /// The verdict of a statement, if it has one.
    fn verdict(&mut self, statement: &Value) -> Result<Option<Verdict>, ExpressionError> {
        let Some((name, value)) = statement.as_object().and_then(|object| object.iter().next()) else {
            return Err(ExpressionError::InvalidStatement);
        };
        Ok(match name.as_str() {
            "counter" | "continue" | "comment" => None,
            "accept" => Some(Verdict::Accept),
            "drop" => Some(Verdict::Drop),
            "return" => Some(Verdict::Return),
            "reject" => {
                if value["type"] != "tcp reset" {
                    self.remark(Kind::Note, OTHER_ANSWER);
                }
                Some(Verdict::Reject)
            }
            "masquerade" | "snat" | "dnat" => Some(Verdict::Translate(translation::of(name, value)?)),
            "jump" | "goto" => {
                Some(Verdict::Jump(path(self.rule, value["target"].as_str().unwrap_or_default())))
            }
            "mangle" if value["key"]["tcp option"]["name"] == "maxseg" => {
                return Err(ExpressionError::SegmentSize);
            }
            other => return Err(ExpressionError::UnknownStatement { name: other.to_owned() }),
        })
    }

    /// Whether packets can skip the other rules of the chain by a statement and are not decided about.
    fn returns(&self, statement: &Value) -> bool {
        let skips = |verdict: &Value| verdict.get("return").is_some() || verdict.get("goto").is_some();
        let map_skips =
            |map| elements(map, &self.sets()).is_none_or(|all| all.iter().any(|one| skips(&one[1])));
        skips(statement) || statement.get("vmap").is_some_and(map_skips)
    }

    /// Reads a verdict map: one step per element.
    fn map(&mut self, filters: Vec<Filter>, map: &Value) -> Result<(), ExpressionError> {
        let sets = self.sets();
        for element in elements(map, &sets).ok_or(ExpressionError::InvalidMap)? {
            let (Some(value), Some(statement)) = (element.get(0), element.get(1)) else {
                return Err(ExpressionError::InvalidMap);
            };
            let narrowed = narrow_by(filters.clone(), &map["key"], "==", value, &sets)?;
            if let Some(verdict) = self.verdict(statement)? {
                self.decide(narrowed, verdict, statement);
            }
        }
        Ok(())
    }
}

/// The elements of a verdict map.
fn elements<'a>(map: &'a Value, sets: &TableSets<'a>) -> Option<&'a [Value]> {
    let named = map["data"].as_str().and_then(|name| sets.get(name.strip_prefix('@')?));
    named.or_else(|| map["data"]["set"].as_array().map(Vec::as_slice))
}

/// Whether a match tests for the loopback interface.
fn is_loopback(test: &Value) -> bool {
    let key = &test["left"]["meta"]["key"];
    let is_name = ["iifname", "oifname", "iif", "oif"].iter().any(|name| key == name);
    is_name && test["op"] == "==" && test["right"] == "lo"
}
