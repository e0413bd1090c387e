//! What a command answers, before it is decided whether people or programs read it.

use serde_json::value::{RawValue, to_raw_value};

use crate::api::*;
use crate::render;

/// A command's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A blank line or a comment.
    Nothing,
    /// A change was carried out.
    Done(Done),
    /// `list`.
    Rules(RuleList),
    /// `show tables`, verbose or not.
    Tables(TableList, bool),
    /// `show interfaces`, verbose or not.
    Interfaces(InterfaceList, bool),
    /// `show runtime`, verbose or not.
    Runtime(Runtime, bool),
    /// `show drops`, verbose or not.
    Drops(DropList, bool),
    /// `show fields`.
    Fields(FieldList),
    /// `show version`.
    Version(VersionEntry),
    /// `show config`.
    Config(ConfigEntry),
}

impl Output {
    /// For people; ends with a line feed unless empty.
    pub fn text(&self) -> String {
        match self {
            Output::Nothing => String::new(),
            Output::Done(done) => format!("{}\n", done.done),
            Output::Rules(list) => render::rules(list),
            Output::Tables(list, verbose) => render::tables(list, *verbose),
            Output::Interfaces(list, verbose) => render::interfaces(list, *verbose),
            Output::Runtime(runtime, verbose) => render::runtime(runtime, *verbose),
            Output::Drops(list, verbose) => render::drops(list, *verbose),
            Output::Fields(list) => render::fields(list),
            Output::Version(version) => render::version(version),
            Output::Config(entry) => entry.config.clone(),
        }
    }

    /// For programs; always complete, whatever `verbose` says. Written out at once: a tree of values of 1,000,000 rules
    /// would take a gigabyte.
    pub fn json(&self) -> Box<RawValue> {
        let value = match self {
            Output::Nothing => to_raw_value(&serde_json::Map::new()),
            Output::Done(done) => to_raw_value(done),
            Output::Rules(list) => to_raw_value(list),
            Output::Tables(list, _) => to_raw_value(list),
            Output::Interfaces(list, _) => to_raw_value(list),
            Output::Runtime(runtime, _) => to_raw_value(runtime),
            Output::Drops(list, _) => to_raw_value(list),
            Output::Fields(list) => to_raw_value(list),
            Output::Version(version) => to_raw_value(version),
            Output::Config(entry) => to_raw_value(entry),
        };
        // Only maps with keys that are no strings and failing Serialize implementations err; these have neither.
        value.unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}
