//! The API on the network: the options of `mmb run`, the listener, and `mmb token`.

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use mmb_control::{ControlSocket, NetworkAccess, NetworkFiles, NetworkListener, new_token};

use crate::failure::{Failure, print};

/// Options of `mmb run` for the API on the network.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// Serve the control API by HTTPS at this address, to the users of --api-users; without --api-cert by
    /// HTTP, at a loopback address only
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub api: Option<SocketAddr>,
    /// Serve a web page and the API at this address, with the users and the certificate of --api
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub web: Option<SocketAddr>,
    /// Users of --api, one in a line: `ROLE NAME token HASH` or `ROLE NAME certificate SUBJECT`
    #[arg(long, value_name = "FILE")]
    pub api_users: Option<PathBuf>,
    /// Certificate of --api, with those that lead to its authority (PEM)
    #[arg(long, value_name = "FILE", requires = "api_key")]
    pub api_cert: Option<PathBuf>,
    /// Private key of --api-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "api_cert")]
    pub api_key: Option<PathBuf>,
    /// Authorities that sign the certificates of clients of --api (PEM)
    #[arg(long, value_name = "FILE", requires = "api_cert")]
    pub api_client_ca: Option<PathBuf>,
}

impl NetworkArgs {
    /// Reads the files; none without `--api` and `--web`.
    ///
    /// # Errors
    /// An address may not be used so, or a file cannot be read or is invalid.
    pub fn access(&self) -> Result<Option<Arc<NetworkAccess>>, Failure> {
        let Some(users) = self.api_users.clone() else {
            return match self.addresses().next() {
                None => Ok(None),
                Some((option, ..)) => Err(Failure::usage(format!(
                    "{option} needs --api-users FILE; `mmb token FILE NAME admin` writes a user to FILE and prints the token"
                ))),
            };
        };
        if self.api_cert.is_none()
            && let Some((option, address, _)) =
                self.addresses().find(|(_, address, _)| !address.ip().is_loopback())
        {
            return Err(Failure::new(format!(
                "{option} {address} would send tokens unencrypted: give --api-cert and --api-key, or a loopback address"
            )));
        }
        if self.addresses().next().is_none() {
            return Err(Failure::usage("--api-users needs --api or --web"));
        }
        let access = NetworkAccess::load(NetworkFiles {
            users,
            certificate: self.api_cert.clone().zip(self.api_key.clone()),
            client_authorities: self.api_client_ca.clone(),
        });
        access.map(|access| Some(Arc::new(access))).map_err(Failure::new)
    }

    /// Listens with what [`NetworkArgs::access`] has read.
    ///
    /// # Errors
    /// The system refused.
    pub fn listen(
        &self,
        access: &Arc<NetworkAccess>,
        socket: &ControlSocket,
    ) -> Result<Vec<NetworkListener>, Failure> {
        let listener = |(_, address, has_page)| {
            let socket = listen(socket, address, if has_page { "the web page" } else { "the API" })?;
            Ok(NetworkListener { socket, access: access.clone(), has_page })
        };
        self.addresses().map(listener).collect()
    }

    /// The options with their addresses, and whether they serve the web page.
    fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr, bool)> {
        let addresses = [("--api", self.api, false), ("--web", self.web, true)];
        addresses.into_iter().filter_map(|(option, address, has_page)| Some((option, address?, has_page)))
    }
}

/// Listens for clients of a service.
///
/// # Errors
/// The system refused.
pub fn listen(socket: &ControlSocket, address: SocketAddr, service: &str) -> Result<TcpListener, Failure> {
    let failed = |e| Failure::new(format!("cannot listen for {service} on {address}: {e}"));
    socket.listen(address).map_err(failed)
}

/// `token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// File of users to append to (`mmb run --api-users`)
    pub file: PathBuf,
    /// Name of the user, for the history and the log
    pub name: String,
    /// What the user may do
    #[arg(value_enum)]
    pub role: ApiRole,
}

/// Roles of users on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ApiRole {
    /// See everything but payloads
    Read,
    /// Change the configuration, capture packets
    Operate,
    /// What `operate` may, with connections that other users cannot take
    Admin,
}

/// Makes a token, appends its user to the file, and prints the token.
///
/// # Errors
/// The name is invalid, or the file cannot be written.
pub fn token(args: &TokenArgs) -> Result<(), Failure> {
    let role = args.role.to_possible_value();
    let role = role.as_ref().map_or("", |value| value.get_name());
    let (token, line) = new_token(role, &args.name).map_err(Failure::new)?;
    let written = File::options().append(true).create(true).mode(0o640).open(&args.file);
    written
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|e| Failure::new(format!("cannot write {}: {e}", args.file.display())))?;
    print(&format!("{token}\n"))
}
