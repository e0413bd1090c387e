//! The output of `nft -j list ruleset`: one base chain and what it jumps to.
//!
//! The format is the one of libnftables-json(5). A rule is a list of statements: matches narrow the packets it is
//! about, a verdict decides. A verdict map becomes a rule for each of its elements.

use std::collections::HashMap;

use serde_json::Value;

use crate::filter::{Filter, IP4, IP6, Values};
use crate::nft_match::{Sets, TableSets, narrow, with_key};
use crate::ordered::{self, Chains, Step, Verdict};
use crate::script::{Kind, Script};
use mmb_lang::FieldId;

/// A base chain: where packets enter.
struct Base {
    /// Table's family and name, chain's name.
    path: String,
    name: String,
    hook: String,
    kind: String,
    priority: i64,
    drops: bool,
}

/// A ruleset as it is read.
#[derive(Default)]
struct Ruleset {
    sets: Sets,
    bases: Vec<Base>,
    chains: Chains,
    rules: HashMap<String, usize>,
}

/// Converts the rules of a chain.
pub fn convert(text: &str, chain: Option<&str>, script: &mut Script) -> Result<(), String> {
    let document: Value = serde_json::from_str(text).map_err(|error| format!("this is no JSON: {error}"))?;
    let Some(objects) = document["nftables"].as_array() else {
        return Err("this is no output of `nft -j list ruleset`".into());
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

/// Family and name of the table that an object is in.
fn table(object: &Value) -> String {
    let word = |key: &str| object[key].as_str().unwrap_or_default();
    format!("{} {}", word("family"), word("table"))
}

/// Family, table and name: what a chain or a set is called in the whole ruleset.
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
        if let Err(reason) = reader.read(statements) {
            reader.steps.clear();
            reader.remark(Kind::NotMapped, &reason);
        }
        let steps = reader.steps;
        self.chains.entry(chain).or_default().extend(steps);
    }

    /// The chain with a name, with `table/name`, or the first filter of forwarded (else of arriving) packets.
    fn base(&self, chain: Option<&str>) -> Result<&Base, String> {
        let named = |base: &&Base, wanted: &str| {
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
                let found = self.bases.iter().find(|base| named(base, wanted));
                found.ok_or_else(|| format!("there is no base chain {wanted}"))
            }
            None => at("forward").or_else(|| at("input")).ok_or_else(|| {
                "there is no filter chain with the hook forward or input; --chain NAME takes another"
                    .to_owned()
            }),
        }
    }

    fn rules_of(&self, base: &Base) -> usize {
        self.rules.get(&base.path).copied().unwrap_or(0)
    }

    fn write(self, chain: Option<&str>, script: &mut Script) -> Result<(), String> {
        let base = self.base(chain)?;
        let family = match base.path.split(' ').next() {
            Some("ip") => Filter::of(FieldId::NetProto, Values::one(IP4)),
            Some("ip6") => Filter::of(FieldId::NetProto, Values::one(IP6)),
            Some("inet") => Some(Filter::default()),
            other => {
                return Err(format!("tables of the family {} are not converted", other.unwrap_or_default()));
            }
        };
        let policy = if base.drops { "drop" } else { "accept" };
        script.comment(format!("chain {}, hook {}, policy {policy}", base.path, base.hook));
        for other in self.bases.iter().filter(|other| other.path != base.path && self.rules_of(other) > 0) {
            let reason = format!("one base chain is converted; --chain {} takes this one", other.name);
            let source = format!("rules: {}, hook {}", self.rules_of(other), other.hook);
            script.remark(Kind::NotMapped, &other.path, &source, reason);
        }
        let rest = family.filter(|_| base.drops);
        ordered::convert(&self.chains, &base.path, rest.as_ref(), script);
        Ok(())
    }
}

/// A rule while its statements are read.
struct Reader<'a> {
    ruleset: &'a Ruleset,
    rule: &'a Value,
    place: &'a str,
    source: &'a str,
    steps: Vec<Step>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, statements: &[Value]) -> Result<(), String> {
        let mut filters = match self.rule["family"].as_str() {
            Some("ip") => Filter::of(FieldId::NetProto, Values::one(IP4)).into_iter().collect(),
            Some("ip6") => Filter::of(FieldId::NetProto, Values::one(IP6)).into_iter().collect(),
            Some("inet") => vec![Filter::default()],
            family => {
                return Err(format!("tables of the family {} are not converted", family.unwrap_or_default()));
            }
        };
        let sets = self.sets();
        for statement in statements {
            if let Some(test) = statement.get("match") {
                if loopback(test) {
                    self.note("packets of the loopback interface do not cross mmb");
                    return Ok(());
                }
                filters = narrow(filters, test, &sets)?;
            } else if let Some(map) = statement.get("vmap") {
                return self.map(filters, map);
            } else if statement.get("log").is_some() {
                self.note("mmb writes no log of packets; it counts them");
            } else if let Some(verdict) = self.verdict(statement)? {
                self.step(filters, verdict);
                return Ok(());
            }
        }
        self.note("it decides nothing");
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

    /// What a statement decides; None: nothing.
    fn verdict(&mut self, statement: &Value) -> Result<Option<Verdict>, String> {
        let Some((name, value)) = statement.as_object().and_then(|object| object.iter().next()) else {
            return Err("a statement is no object".into());
        };
        Ok(match name.as_str() {
            "counter" | "continue" | "comment" => None,
            "accept" => Some(Verdict::Accept),
            "drop" => Some(Verdict::Drop),
            "return" => Some(Verdict::Return),
            "reject" => {
                self.remark(Kind::Differs, "mmb drops, and sends no answer");
                Some(Verdict::Drop)
            }
            "jump" => Some(Verdict::Jump(path(self.rule, value["target"].as_str().unwrap_or_default()))),
            other => return Err(format!("mmb's import has nothing for the statement `{other}`")),
        })
    }

    /// A verdict map: a step for each element.
    fn map(&mut self, filters: Vec<Filter>, map: &Value) -> Result<(), String> {
        let sets = self.sets();
        let named = map["data"].as_str().and_then(|name| sets.get(name.strip_prefix('@')?));
        let Some(elements) = named.or_else(|| map["data"]["set"].as_array().map(Vec::as_slice)) else {
            return Err("a verdict map without elements".into());
        };
        for element in elements {
            let (Some(value), Some(statement)) = (element.get(0), element.get(1)) else {
                return Err("an element of a verdict map is no pair".into());
            };
            let fits = with_key(filters.clone(), &map["key"], "==", value, &sets)?;
            if let Some(verdict) = self.verdict(statement)? {
                self.step(fits, verdict);
            }
        }
        Ok(())
    }
}

/// Whether a match asks for the loopback interface.
fn loopback(test: &Value) -> bool {
    let key = &test["left"]["meta"]["key"];
    let is_name = ["iifname", "oifname", "iif", "oif"].iter().any(|name| key == name);
    is_name && test["op"] == "==" && test["right"] == "lo"
}
