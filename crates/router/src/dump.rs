//! Asking the kernel for everything, class by class.

use std::time::Instant;

use rustc_hash::FxHashSet;

use crate::event::Event;
use crate::model::Class;
use crate::netlink::{Channel, Message};

/// The order: what others refer to comes first.
const ORDER: [Class; 9] = [
    Class::Links,
    Class::Addresses,
    Class::Settings4,
    Class::Settings6,
    Class::Objects,
    Class::Neighbors4,
    Class::Neighbors6,
    Class::Routes4,
    Class::Routes6,
];
/// Times that a class is asked for until it comes undisturbed.
const TRIES: u32 = 5;

/// What a message is to a dump.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A line of it.
    Line,
    /// Not its own.
    Other,
}

/// A dump that goes on.
pub(crate) struct Dump {
    pub began: Instant,
    /// The place in [`ORDER`] of the class that is asked for.
    at: usize,
    /// The number of the question; 0: it has not been asked.
    sequence: u32,
    tries: u32,
    /// Lines may be missing.
    disturbed: bool,
    /// The kernel's last word on the class.
    over: bool,
    complete: FxHashSet<Class>,
    /// Classes that the kernel does not have.
    unknown: FxHashSet<Class>,
}

impl Dump {
    /// Asks for the first class.
    pub fn begin(questions: &mut Channel) -> Dump {
        let mut dump = Dump {
            began: Instant::now(),
            at: 0,
            sequence: 0,
            tries: 0,
            disturbed: false,
            over: false,
            complete: FxHashSet::default(),
            unknown: FxHashSet::default(),
        };
        dump.ask(questions);
        dump
    }

    fn ask(&mut self, questions: &mut Channel) {
        (self.over, self.disturbed) = (false, false);
        self.tries += 1;
        match ORDER.get(self.at).map(|class| questions.dump(*class)) {
            Some(Ok(sequence)) => self.sequence = sequence,
            // An older dump may still go on, which the socket has to be rid of first: asked again at the next turn.
            Some(Err(_)) => self.sequence = 0,
            None => {}
        }
    }

    /// A change has come meanwhile. The kernel finds its place in some of its lists again by counting, and passes something
    /// over when something before it has gone.
    pub fn disturb(&mut self, event: &Event) {
        self.disturbed |= match (ORDER.get(self.at), event) {
            (Some(Class::Routes6), Event::RouteGone(route)) => route.prefix.is_ipv6(),
            (Some(Class::Neighbors4), Event::NeighborGone(neighbor)) => neighbor.address.is_ipv4(),
            (Some(Class::Neighbors6), Event::NeighborGone(neighbor)) => neighbor.address.is_ipv6(),
            _ => false,
        };
    }

    /// Takes note of an answer.
    pub fn hear(&mut self, message: &Message<'_>) -> Heard {
        if message.sequence != self.sequence {
            return Heard::Other;
        }
        self.disturbed |= message.is_interrupted();
        if let Some(error) = message.end() {
            self.over = true;
            if error != 0
                && let Some(class) = ORDER.get(self.at)
            {
                self.unknown.insert(*class);
            }
        }
        Heard::Line
    }

    /// Goes on to what is to be asked next. False: the dump is over.
    pub fn proceed(&mut self, questions: &mut Channel) -> bool {
        if self.sequence == 0 {
            self.ask(questions);
            return true;
        }
        if !self.over {
            return true;
        }
        let Some(class) = ORDER.get(self.at).copied() else { return false };
        if !self.disturbed || self.unknown.contains(&class) || self.tries == TRIES {
            if !self.disturbed && !self.unknown.contains(&class) {
                self.complete.insert(class);
            }
            self.at += 1;
            self.tries = 0;
        }
        self.ask(questions);
        self.at < ORDER.len()
    }

    /// Whether what was not told of in this class is not there.
    pub fn is_complete(&self, class: Class) -> bool {
        self.complete.contains(&class)
    }

    /// Whether all classes that there are have come undisturbed.
    pub fn is_clean(&self) -> bool {
        ORDER.iter().all(|class| self.complete.contains(class) || self.unknown.contains(class))
    }
}
