//! The daemon that commands are for.

use std::path::PathBuf;

use clap::Args;
use mmb_control::{Client, Remote, RemoteFiles, client_path};

use crate::failure::Failure;

/// The daemon that commands are for: on this machine by default.
#[derive(Clone, Debug, Default, Args)]
pub struct Target {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", env = "MMB_SOCKET", global = true)]
    pub socket: Option<PathBuf>,
    /// Address of a daemon on another machine (its `--api`)
    #[arg(
        long,
        value_name = "https://HOST:PORT",
        env = "MMB_REMOTE",
        global = true,
        conflicts_with = "socket"
    )]
    pub remote: Option<String>,
    /// File with the token for --remote; `mmb token` makes tokens
    #[arg(long, value_name = "FILE", env = "MMB_TOKEN_FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// File with the authorities that sign the certificate of --remote; those of the system if absent
    #[arg(long, value_name = "FILE", env = "MMB_CA", global = true)]
    pub ca: Option<PathBuf>,
    /// Certificate of this client for --remote
    #[arg(long, value_name = "FILE", env = "MMB_CERT", global = true, requires = "key")]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, value_name = "FILE", env = "MMB_KEY", global = true, requires = "cert")]
    pub key: Option<PathBuf>,
}

/// Global options whose value is the next word.
pub const WITH_VALUE: [&str; 6] = ["--socket", "--remote", "--token-file", "--ca", "--cert", "--key"];

impl Target {
    /// A client for the daemon.
    ///
    /// # Errors
    /// The address is invalid, or a file cannot be read or is invalid.
    pub fn connect(&self) -> Result<Client, Failure> {
        let client = match &self.remote {
            None => Client::new(&self.socket.clone().unwrap_or_else(client_path)),
            Some(url) => {
                let files = RemoteFiles {
                    token: self.token_file.clone(),
                    authorities: self.ca.clone(),
                    certificate: self.cert.clone().zip(self.key.clone()),
                };
                Client::remote(Remote::new(url, &files).map_err(Failure::new)?)
            }
        };
        client.map_err(|e| Failure::new(format!("cannot start the client: {e}")))
    }

    /// The control socket, for a command about this machine.
    ///
    /// # Errors
    /// The options name another machine.
    pub fn local(&self, command: &str) -> Result<Option<PathBuf>, Failure> {
        match self.remote {
            None => Ok(self.socket.clone()),
            Some(_) => Err(Failure::usage(format!(
                "`mmb {command}` is about this machine: leave out --remote and MMB_REMOTE"
            ))),
        }
    }
}
