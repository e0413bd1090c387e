//! Rule sets from lines of the language.

use std::sync::Arc;

use mmb_flow::{ForwardConfig, NatConfig, NatConfigError, PoolConfig, SessionSettings};
use mmb_lang::{Chain, Command, Diagnostic, NfInstance, Rule, SetElements, parse_line};
use mmb_nf::{Order, Program, ProgramError, ProgramSpec, Registry};
use mmb_policy::{ElementInfo, Policy, forward_config, pool_config};

use crate::RuleSet;

/// Seed of the functions' random numbers.
const SEED: u64 = 42;

/// Why lines are no rule set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleSetError {
    /// The line does not parse, or the engine cannot run its rule.
    #[error("{line}: {error}")]
    Line {
        /// The line.
        line: String,
        /// The error.
        error: Diagnostic,
    },
    /// The line is a command of another kind.
    #[error("{line}: neither a rule nor a pool nor a forward nor a function nor a chain")]
    OtherCommand {
        /// The line.
        line: String,
    },
    /// The pool or forward of the line is invalid.
    #[error("{line}: {error}")]
    NatLine {
        /// The line.
        line: String,
        /// The error.
        error: NatConfigError,
    },
    /// Pools or forwards contradict each other.
    #[error(transparent)]
    Nat(#[from] NatConfigError),
    /// A function or a chain is invalid.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Runs `set add NAME KIND`, `set NAME add ELEMENT …` or `set NAME del ELEMENT …` on the sets of a policy.
///
/// # Errors
/// The line does not parse, or is another command.
pub fn change_set(policy: &mut Policy, line: &str) -> Result<(), RuleSetError> {
    let other = || RuleSetError::OtherCommand { line: line.to_owned() };
    let parsed = parse_line(line).map_err(|error| RuleSetError::Line { line: line.to_owned(), error })?;
    match parsed.ok_or_else(other)? {
        Command::SetAdd(set) => policy.define_set(&set.name, set.kind),
        Command::ElementAdd(SetElements { name, elements, .. }) => {
            policy.add_elements(&name, elements.into_iter().map(|element| (element, ElementInfo::default())));
        }
        Command::ElementDel { name, elements } => {
            policy.del_elements(&name, &elements);
        }
        _ => return Err(other()),
    }
    Ok(())
}

impl RuleSet {
    /// Parses rules, pools, forwards, functions and chains, one a line. The interface `port7` is port 7.
    /// Rules with the text of a rule of `previous` keep its slot.
    ///
    /// # Errors
    /// The first error.
    pub fn parse<L: AsRef<str>>(
        lines: &[L],
        settings: SessionSettings,
        previous: Option<&Policy>,
    ) -> Result<RuleSet, RuleSetError> {
        let (policy, chains) = Default::default();
        parse_after(lines, settings, (previous.unwrap_or(&policy), &chains), &Registry::default(), 1)
    }

    /// Parses lines as [`RuleSet::parse`], with these function types and this number of workers. Functions
    /// with the name, type and arguments of a function of `previous` keep their instance.
    ///
    /// # Errors
    /// As [`RuleSet::parse`].
    pub fn parse_with<L: AsRef<str>>(
        lines: &[L],
        settings: SessionSettings,
        previous: Option<&RuleSet>,
        registry: &Registry,
        workers: u16,
    ) -> Result<RuleSet, RuleSetError> {
        let empty = RuleSet::default();
        let previous = previous.unwrap_or(&empty);
        parse_after(lines, settings, (&previous.policy, &previous.chains), registry, workers)
    }
}

fn parse_after<L: AsRef<str>>(
    lines: &[L],
    settings: SessionSettings,
    (policy, chains): (&Policy, &Program),
    registry: &Registry,
    workers: u16,
) -> Result<RuleSet, RuleSetError> {
    let mut parsed = ParsedLines::default();
    for line in lines.iter().map(AsRef::as_ref) {
        parsed.add(line)?;
    }
    let port = |name: &str| {
        let number = name.strip_prefix("broker ").unwrap_or(name).strip_prefix("port")?;
        number.parse().ok()
    };
    let pools: Vec<String> = parsed.pools.iter().map(|pool| pool.name().to_owned()).collect();
    let program = Program::compile(&ProgramSpec {
        functions: &parsed.functions,
        chains: &parsed.chains,
        registry,
        resolve_port: &port,
        has_pool: &|name| pools.iter().any(|pool| pool == name),
        workers,
        seed: SEED,
        files: &Default::default(),
        processes: Default::default(),
        previous: Some(chains),
        scratchpad_limit: RuleSet::SCRATCHPAD_BYTES,
        order: Order::Maximal,
    })?;
    let class = |name: &str| program.chain(name).map(|chain| program.class(chain).to_vec());
    let policy = policy
        .replace_with(&parsed.rules, &port, &class)
        .map_err(|(at, error)| RuleSetError::Line { line: parsed.rules[at].to_string(), error })?;
    let mut rules = RuleSet::new(policy, NatConfig::new(parsed.pools, parsed.forwards)?, settings);
    rules.chains = Arc::new(program);
    Ok(rules)
}

/// The lines by kind.
#[derive(Default)]
struct ParsedLines {
    rules: Vec<Rule>,
    pools: Vec<PoolConfig>,
    forwards: Vec<ForwardConfig>,
    functions: Vec<NfInstance>,
    chains: Vec<Chain>,
}

impl ParsedLines {
    fn add(&mut self, line: &str) -> Result<(), RuleSetError> {
        let owned = || line.to_owned();
        let invalid_nat = |error| RuleSetError::NatLine { line: owned(), error };
        match parse_line(line).map_err(|error| RuleSetError::Line { line: owned(), error })? {
            Some(Command::Add(rule)) => self.rules.push(rule),
            Some(Command::NatPoolAdd(pool)) => {
                let Some(range) = pool.addresses.range() else {
                    return Err(RuleSetError::OtherCommand { line: owned() });
                };
                self.pools.push(pool_config(&pool, range).map_err(invalid_nat)?);
            }
            Some(Command::NatForwardAdd(forward)) => {
                self.forwards.push(forward_config(&forward).map_err(invalid_nat)?);
            }
            Some(Command::NfAdd(function)) => self.functions.push(function),
            Some(Command::ChainAdd(chain)) => self.chains.push(chain),
            _ => return Err(RuleSetError::OtherCommand { line: owned() }),
        }
        Ok(())
    }
}
