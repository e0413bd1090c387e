//! What protects the API on the network: certificates and users, read from files.
//!
//! Theory of operation. [`NetworkAccess`] holds the values of the files, which [`NetworkAccess::reload`]
//! replaces as a whole. If one file is wrong, all earlier values stay. New connections get the new
//! certificate. Each request is checked against the users of its time, so a user who is removed is refused
//! at once, also on an open connection.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;

use super::users::Users;

/// The files.
#[derive(Clone, Debug)]
pub struct NetworkFiles {
    /// Users with their roles.
    pub users: PathBuf,
    /// The certificate of the server with those that lead to its authority, and the private key (PEM).
    /// Without them the connections are not encrypted.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Certificates of the authorities that sign those of clients (PEM).
    pub client_authorities: Option<PathBuf>,
}

/// The values of the files.
#[derive(Debug)]
pub(in crate::server) struct Access {
    pub users: Users,
    pub tls: Option<Arc<ServerConfig>>,
}

/// Who may use the API on the network.
#[derive(Debug)]
pub struct NetworkAccess {
    files: NetworkFiles,
    current: ArcSwap<Access>,
}

impl NetworkAccess {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or is invalid; the sentence names it.
    pub fn load(files: NetworkFiles) -> Result<NetworkAccess, String> {
        let current = ArcSwap::from_pointee(Access::load(&files)?);
        Ok(NetworkAccess { files, current })
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// Those of [`NetworkAccess::load`]; the earlier values stay.
    pub fn reload(&self) -> Result<(), String> {
        self.current.store(Arc::new(Access::load(&self.files)?));
        Ok(())
    }

    /// Whether connections are encrypted.
    pub fn has_tls(&self) -> bool {
        self.files.certificate.is_some()
    }

    /// The values of now.
    pub(in crate::server) fn current(&self) -> Arc<Access> {
        self.current.load_full()
    }
}

impl Access {
    fn load(files: &NetworkFiles) -> Result<Access, String> {
        let text = std::fs::read_to_string(&files.users).map_err(|e| unreadable(&files.users, e))?;
        let users = Users::parse(&text).map_err(|e| format!("{}: {e}", files.users.display()))?;
        if users.has_certificates() && files.client_authorities.is_none() {
            return Err(format!(
                "{} has users with certificates: --api-client-ca names the authority that signs them",
                files.users.display()
            ));
        }
        let authorities = files.client_authorities.as_deref().map(authorities).transpose()?;
        let tls = files.certificate.as_ref().map(|(chain, key)| tls(chain, key, authorities)).transpose()?;
        Ok(Access { users, tls })
    }
}

fn unreadable(path: &Path, reason: impl Display) -> String {
    format!("cannot read {}: {reason}", path.display())
}

/// The certificates of a file (PEM), at least one.
///
/// # Errors
/// One sentence that names the file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|e| unreadable(path, e))?;
    match found.is_empty() {
        true => Err(format!("{} has no certificate (PEM)", path.display())),
        false => Ok(found),
    }
}

/// The private key in a file (PEM).
///
/// # Errors
/// One sentence that names the file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| unreadable(path, e))
}

/// The authorities whose certificates are in a file (PEM).
///
/// # Errors
/// One sentence that names the file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|e| unreadable(path, e))?;
    }
    Ok(store)
}

/// How the server proves its name, and asks clients for theirs.
fn tls(chain: &Path, key: &Path, clients: Option<RootCertStore>) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let invalid = |e: &dyn Display| format!("cannot use {} with {}: {e}", chain.display(), key.display());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| invalid(&e))?;
    let builder = match clients {
        // Others may have a token.
        Some(roots) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|e| invalid(&e))?,
        ),
        None => builder.with_no_client_auth(),
    };
    let mut config =
        builder.with_single_cert(certificates(chain)?, private_key(key)?).map_err(|e| invalid(&e))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
