//! The output of `nft -j list ruleset`: one base chain, and the chains that it jumps to.
//!
//! The format is libnftables-json(5). A rule is a list of statements: matches select packets, a verdict
//! decides. A verdict map becomes one rule per element.

mod expression;

use std::collections::HashMap;

use mmb_lang::FieldId;
use serde_json::Value;

use self::expression::{ExpressionError, Sets, TableSets, narrow, narrow_by};
use crate::filter::{Filter, IP4, IP6, Values};
use crate::ordered::{self, Chains, OTHER_ANSWER, Step, Verdict};
use crate::script::{Kind, Script};

/// Why the input is not a usable output of `nft -j list ruleset`.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The input is not JSON.
    #[error("not JSON: {0}")]
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
struct Base {
    /// Family and name of the table, and name of the chain.
    path: String,
    name: String,
    hook: String,
    kind: String,
    priority: i64,
    drops: bool,
}

/// A ruleset.
#[derive(Default)]
struct Ruleset {
    sets: Sets,
    bases: Vec<Base>,
    chains: Chains,
    /// Number of rules in each chain.
    rules: HashMap<String, usize>,
}

/// Converts the rules of a chain.
///
/// # Errors
/// See [`NftError`].
pub fn convert(text: &str, chain: Option<&str>, script: &mut Script) -> Result<(), NftError> {
    let document: Value = serde_json::from_str(text)?;
    let Some(objects) = document["nftables"].as_array() else {
        return Err(NftError::NotARuleset);
    };
    let mut ruleset = Ruleset::default();
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

impl Ruleset {
    fn declare(&mut self, object: &Value) {
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
        }
        let steps = reader.steps;
        self.chains.entry(chain).or_default().extend(steps);
    }

    /// The base chain with a name or `table/name`. By default the first filter with the hook `forward`, else
    /// `input`.
    fn base(&self, chain: Option<&str>) -> Result<&Base, NftError> {
        let has_name = |base: &&Base, wanted: &str| {
            let (table, name) =
                wanted.split_once('/').map_or((None, wanted), |(table, name)| (Some(table), name));
            base.name == name && table.is_none_or(|table| base.path.split(' ').nth(1) == Some(table))
        };
        let at = |hook: &str| {
            let all = self.bases.iter().filter(|base| base.hook == hook && base.kind == "filter");
            all.filter(|base| base.drops || self.rules_of(base) > 0).min_by_key(|base| base.priority)
        };
        match chain {
            Some(wanted) => {
                let found = self.bases.iter().find(|base| has_name(base, wanted));
                found.ok_or_else(|| NftError::NoChain { chain: wanted.to_owned() })
            }
            None => at("forward").or_else(|| at("input")).ok_or(NftError::NoFilterChain),
        }
    }

    fn rules_of(&self, base: &Base) -> usize {
        self.rules.get(&base.path).copied().unwrap_or(0)
    }

    fn write(self, chain: Option<&str>, script: &mut Script) -> Result<(), NftError> {
        let base = self.base(chain)?;
        let family = match base.path.split(' ').next() {
            Some("ip") => Filter::of(FieldId::NetProto, Values::one(IP4)),
            Some("ip6") => Filter::of(FieldId::NetProto, Values::one(IP6)),
            Some("inet") => Some(Filter::default()),
            other => {
                return Err(NftError::UnsupportedFamily { family: other.unwrap_or_default().to_owned() });
            }
        };
        let policy = if base.drops { "drop" } else { "accept" };
        script.comment(format!("chain {}, hook {}, policy {policy}", base.path, base.hook));
        for other in self.bases.iter().filter(|other| other.path != base.path && self.rules_of(other) > 0) {
            let reason = format!("one base chain is converted; --chain {} converts this one", other.name);
            let source = format!("rules: {}, hook {}", self.rules_of(other), other.hook);
            script.remark(Kind::NotMapped, &other.path, &source, reason);
        }
        let rest = family.filter(|_| base.drops);
        ordered::convert(&self.chains, &base.path, rest.as_ref(), script);
        Ok(())
    }
}

/// A rule whose statements are being read.
struct Reader<'a> {
    ruleset: &'a Ruleset,
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
        let (sets, mut logs) = (self.sets(), false);
        for statement in statements {
            if let Some(test) = statement.get("match") {
                if is_loopback(test) {
                    self.note("packets of the loopback interface do not pass mmb");
                    return Ok(());
                }
                filters = narrow(filters, test, &sets)?;
            } else if let Some(map) = statement.get("vmap") {
                return self.map(filters, map);
            } else if let Some(log) = statement.get("log") {
                logs = true;
                let prefix = log["prefix"].as_str().and_then(ordered::log_prefix);
                self.step(filters.clone(), Verdict::Log(prefix));
            } else if let Some(verdict) = self.verdict(statement)? {
                self.step(filters, verdict);
                return Ok(());
            }
        }
        if !logs {
            self.note("it has no verdict");
        }
        Ok(())
    }

    fn sets(&self) -> TableSets<'a> {
        TableSets { all: &self.ruleset.sets, table: table(self.rule) }
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
            "jump" => Some(Verdict::Jump(path(self.rule, value["target"].as_str().unwrap_or_default()))),
            other => return Err(ExpressionError::UnknownStatement { name: other.to_owned() }),
        })
    }

    /// Reads a verdict map: one step per element.
    fn map(&mut self, filters: Vec<Filter>, map: &Value) -> Result<(), ExpressionError> {
        let sets = self.sets();
        let named = map["data"].as_str().and_then(|name| sets.get(name.strip_prefix('@')?));
        let Some(elements) = named.or_else(|| map["data"]["set"].as_array().map(Vec::as_slice)) else {
            return Err(ExpressionError::InvalidMap);
        };
        for element in elements {
            let (Some(value), Some(statement)) = (element.get(0), element.get(1)) else {
                return Err(ExpressionError::InvalidMap);
            };
            let narrowed = narrow_by(filters.clone(), &map["key"], "==", value, &sets)?;
            if let Some(verdict) = self.verdict(statement)? {
                self.step(narrowed, verdict);
            }
        }
        Ok(())
    }
}

/// Whether a match tests for the loopback interface.
fn is_loopback(test: &Value) -> bool {
    let key = &test["left"]["meta"]["key"];
    let is_name = ["iifname", "oifname", "iif", "oif"].iter().any(|name| key == name);
    is_name && test["op"] == "==" && test["right"] == "lo"
}
