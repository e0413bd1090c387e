//! Who makes a change.

use std::cell::RefCell;
use std::net::IpAddr;

/// The client that makes a change, and the change as they wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Author {
    /// User of a local client; none if the daemon itself changes something.
    pub user: Option<u32>,
    /// Process of the client.
    pub process: Option<i32>,
    /// Name of a client on the network.
    pub name: Option<String>,
    /// Address of a client on the network.
    pub address: Option<IpAddr>,
    /// The command, in one line.
    pub change: String,
}

thread_local! {
    /// The author of what this thread changes. A request runs on one thread from its beginning to its end.
    static CURRENT: RefCell<Author> = RefCell::default();
}

impl Author {
    /// The author of the first configuration.
    pub fn start() -> Author {
        Author::daemon("start")
    }

    /// The daemon itself.
    pub fn daemon(change: impl Into<String>) -> Author {
        Author { change: change.into(), ..Author::default() }
    }

    /// The author of what this thread changes.
    pub fn current() -> Author {
        CURRENT.with_borrow(Author::clone)
    }

    /// Runs a change as its author.
    pub fn run<T>(self, change: impl FnOnce() -> T) -> T {
        /// Puts the earlier author back, also after a panic.
        struct Restore(Author);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(std::mem::take(&mut self.0));
            }
        }
        let _restore = Restore(CURRENT.replace(self));
        change()
    }
}
