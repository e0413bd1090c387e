//! Commands of the language against the running configuration.

mod output;

use mmb_lang::{CaptureSelection, Command, Match, ShowSubject};

pub use output::Output;

use crate::error::{CommandError, Refusal, RefusalKind};
use crate::query;
use crate::transaction::Control;

impl Control {
    /// Runs one line of the language.
    ///
    /// # Errors
    /// A line that is wrong, or that cannot be done; nothing has changed then.
    pub fn execute(&self, line: &str) -> Result<Output, Refusal> {
        let command =
            mmb_lang::parse_line(line).map_err(|d| Refusal::of(RefusalKind::Invalid, [(d, line)]))?;
        let Some(command) = command else { return Ok(Output::Nothing) };
        self.run(&command).map_err(|error| error.in_line(line))
    }

    fn run(&self, command: &Command) -> Result<Output, CommandError> {
        let done = match command {
            Command::List { matches } if matches.is_empty() => return Ok(Output::Rules(self.rules())),
            Command::List { matches } => return self.rules_about(matches).map(Output::Rules),
            Command::Show { what, verbose } => return Ok(self.show(*what, *verbose)),
            Command::ShowFib { within } => return Ok(Output::Fib(self.fib_listing(*within))),
            Command::ShowNeighbors { within } => return Ok(Output::Neighbors(self.neighbors(*within))),
            Command::ShowConnections { verbose, matches } => {
                return Ok(Output::Connections(Box::new(self.connection_listing(matches, *verbose)?)));
            }
            Command::Capture { matches, selection } => return self.captured(matches, selection),
            Command::Trace { matches, why, count, seconds } => {
                return Ok(Output::Trace(Box::new(self.trace(matches, why.as_ref(), (*count, *seconds))?)));
            }
            Command::ClearConnections { matches } => return self.cleared(matches),
            Command::History { revision } => return self.changes(*revision),
            Command::ShowSet { name } => return self.set_elements(name).map(Output::SetElements),
            Command::Rollback { revision } => self.rollback(*revision),
            Command::Confirm => self.confirm(),
            Command::Add(rule) => self.add_rule(rule),
            Command::Del { rule } => self.delete(rule),
            Command::Flush => self.flush(),
            Command::InterfaceAdd { name, kind } => self.add_interface(name, kind),
            Command::InterfaceDel { name } => self.delete_interface(name),
            Command::Enable(names) => self.set_enabled(names, true),
            Command::Disable(names) => self.set_enabled(names, false),
            Command::Wire { a, b } => self.wire(a, b),
            Command::Unwire { a } => self.unwire(a),
            Command::Route(names) => self.route(names),
            Command::Unroute { name } => self.unroute(name),
            Command::NatPoolAdd(pool) => self.add_pool(pool),
            Command::NatPoolDel { name } => self.delete_pool(name),
            Command::NatForwardAdd(forward) => self.add_forward(forward),
            Command::NatForwardDel { proto, outside } => self.delete_forward(*proto, *outside),
            Command::DomainAdd(domain) => self.add_domain(domain),
            Command::DomainDel { name } => self.delete_domain(name),
            Command::NfAdd(nf) => self.add_function(nf),
            Command::NfDel { name } => self.delete_function(name),
            Command::NfSet { name, words } => self.set_function(name, words),
            Command::ChainAdd(chain) => self.add_chain(chain),
            Command::ChainSet(chain) => self.set_chain(chain),
            Command::ChainDel { name } => self.delete_chain(name),
            Command::BrokerAdd(broker) => self.add_broker(broker),
            Command::BrokerDel { name } => self.delete_broker(name),
            Command::SetAdd(_) | Command::SetDel { .. } => self.change_set(command),
            Command::ElementAdd(_) | Command::ElementDel { .. } => self.change_set(command),
            Command::ElementFlush { name } => self.flush_set(name),
            Command::SetOnError(on_error) => self.set_on_error(*on_error),
            Command::SetTimeout { timeout, seconds } => self.set_timeout(*timeout, *seconds),
            Command::SetPuntLimit { class, rate } => self.set_punt_limit(*class, *rate),
            Command::SetSessionLimit(limit) => self.set_session_limit(*limit),
            Command::SetHeldPackets { scope, packets } => self.set_held_packets(*scope, *packets),
            Command::SetStreamPickup(pickup) => self.set_stream_pickup(*pickup),
            Command::SetStreamOverflow(overflow) => self.set_stream_overflow(*overflow),
            Command::SetStreamMptcp(mptcp) => self.set_stream_mptcp(*mptcp),
            Command::SetStreamHoldTime(time) => self.set_stream_hold_time(*time),
            Command::SetTcpPickup(on) => self.set_tcp_pickup(*on),
            Command::SetTcpWindowCheck(on) => self.set_tcp_window_check(*on),
            Command::SetMartianCheck(on) => self.set_martian_check(*on),
            Command::SetRpf(mode) => self.set_reverse_path(*mode),
            Command::SetInterfaceRpf { mode, names } => self.set_interface_reverse_path(names, *mode),
            Command::SetFastPath(mode) => self.set_fast_path(*mode),
            Command::SetLogFormat(format) => self.set_log_format(*format),
            Command::SetLogTo(sink) => self.set_log_sink(*sink),
            Command::SetWorkerMode(mode) => self.set_worker_mode(*mode),
            Command::SetGro(on) => self.set_gro(*on),
        };
        done.map(Output::Done)
    }

    /// All changes, or what one change did.
    fn changes(&self, revision: Option<u64>) -> Result<Output, CommandError> {
        match revision {
            None => Ok(Output::History(self.revisions())),
            Some(number) => self.revision_diff(number).map(Output::RevisionDiff),
        }
    }

    fn captured(&self, matches: &[Match], selection: &CaptureSelection) -> Result<Output, CommandError> {
        self.capture(matches, selection).map(|listing| Output::Capture(Box::new(listing)))
    }

    fn cleared(&self, matches: &[Match]) -> Result<Output, CommandError> {
        self.clear_connections(matches).map(Output::Cleared)
    }

    fn show(&self, what: ShowSubject, verbose: bool) -> Output {
        match what {
            ShowSubject::Tables => Output::Tables(self.tables(), verbose),
            ShowSubject::Interfaces if verbose => {
                Output::Interfaces(self.interfaces_with_capabilities(), true)
            }
            ShowSubject::Interfaces => Output::Interfaces(self.interfaces(), false),
            ShowSubject::Runtime => Output::Runtime(Box::new(self.runtime()), verbose),
            ShowSubject::Drops => Output::Drops(self.drops(), verbose),
            ShowSubject::Fields => Output::Fields(query::fields()),
            ShowSubject::Version => Output::Version(self.version()),
            ShowSubject::Config => Output::Config(self.config()),
            ShowSubject::Nat => Output::Nat(self.nat()),
            ShowSubject::Chains => Output::Chains(Box::new(self.chains()), verbose),
            ShowSubject::Domains => Output::Domains(self.domains(), verbose),
            ShowSubject::Sets => Output::Sets(self.sets()),
            ShowSubject::Brokers => Output::Brokers(self.brokers(), verbose),
            ShowSubject::FastPath => Output::FastPath(Box::new(self.fast_path()), verbose),
            ShowSubject::Functions => Output::Functions(Box::new(self.functions()), verbose),
        }
    }
}
