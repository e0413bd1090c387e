//! A daemon on another machine: its address, and what both sides prove their names with.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::server::{authorities, certificates, private_key};

/// Authorities that Debian trusts.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Time for a connection with its handshake.
const CONNECT: Duration = Duration::from_secs(10);

/// The files of a client on another machine.
#[derive(Clone, Debug, Default)]
pub struct RemoteFiles {
    /// A token in one line.
    pub token: Option<PathBuf>,
    /// Certificates of the authorities that sign the daemon's (PEM); those of the system if absent.
    pub authorities: Option<PathBuf>,
    /// The certificate of the client and its private key (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// A daemon on another machine.
pub struct Remote {
    url: String,
    host: String,
    port: u16,
    /// None: without TLS, on a loopback address.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    authorization: Option<HeaderValue>,
    authority: HeaderValue,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// A stream of bytes.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Remote {
    /// The daemon at `https://HOST:PORT`, or at `http://ADDRESS:PORT` for a loopback address.
    ///
    /// # Errors
    /// The address is invalid, or a file cannot be read or is invalid.
    pub fn new(url: &str, files: &RemoteFiles) -> Result<Remote, String> {
        let invalid = || format!("invalid address `{url}` of a daemon: it has the form https://HOST:PORT");
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(invalid)?;
        if !matches!(uri.path_and_query().map(|path| path.as_str()), None | Some("/")) {
            return Err(invalid());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (tls, port) = match uri.scheme_str() {
            Some("https") => (Some(connector(&host, files)?), 443),
            Some("http") if host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) => (None, 80),
            Some("http") => {
                return Err(format!("`{url}` is not encrypted: `http://` is for loopback addresses only"));
            }
            _ => return Err(invalid()),
        };
        let authorization = files.token.as_deref().map(authorization).transpose()?;
        let port = authority.port_u16().unwrap_or(port);
        let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| invalid())?;
        Ok(Remote { url: url.trim_end_matches('/').to_owned(), host, port, tls, authorization, authority })
    }

    /// The value of the header `Host`.
    pub(super) fn authority(&self) -> HeaderValue {
        self.authority.clone()
    }

    /// The value of the header `Authorization`.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        self.authorization.clone()
    }

    /// Connects, with the handshake.
    pub(super) async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let failed = |error: &dyn fmt::Display| format!("cannot connect to {}: {error}", self.url);
        let connect = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|e| failed(&e))?;
            // A request is one message; it does not wait for more.
            stream.set_nodelay(true).map_err(|e| failed(&e))?;
            match &self.tls {
                None => Ok(Box::new(stream) as Box<dyn Stream>),
                Some((connector, name)) => {
                    let stream = connector.connect(name.clone(), stream).await.map_err(|e| failed(&e))?;
                    Ok(Box::new(stream) as Box<dyn Stream>)
                }
            }
        };
        let late = format!("no answer within {} seconds", CONNECT.as_secs());
        tokio::time::timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(failed(&late)))
    }
}

fn connector(host: &str, files: &RemoteFiles) -> Result<(TlsConnector, ServerName<'static>), String> {
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| format!("`{host}` is not the name of a host"))?;
    let trusted = files.authorities.as_deref().unwrap_or(Path::new(SYSTEM_AUTHORITIES));
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| e.to_string())?
        .with_root_certificates(authorities(trusted)?);
    let mut config = match &files.certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(certificates(chain)?, private_key(key)?)
            .map_err(|e| format!("cannot use {} with {}: {e}", chain.display(), key.display()))?,
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsConnector::from(Arc::new(config)), name))
}

/// The header for the token in a file.
fn authorization(path: &Path) -> Result<HeaderValue, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
    let mut value = value.map_err(|_| format!("{} is not a token in one line", path.display()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> String {
        Remote::new(url, &RemoteFiles::default()).err().unwrap_or_else(|| panic!("{url}"))
    }

    #[test]
    fn addresses_are_https_or_loopback() {
        for url in
            ["localhost:9443", "box", "ftp://box", "https://a@box", "https://box/v1", "https://box?a=b", ""]
        {
            assert!(error(url).contains("invalid address"), "{url}");
        }
        for url in ["http://box:8080", "http://192.0.2.1", "http://localhost:1"] {
            assert!(error(url).contains("is not encrypted"), "{url}");
        }
        let remote = Remote::new("http://[::1]:8080/", &RemoteFiles::default()).unwrap();
        assert_eq!(
            (remote.host.as_str(), remote.port, remote.to_string().as_str()),
            ("::1", 8080, "http://[::1]:8080")
        );
        assert!(remote.authorization().is_none() && remote.authority() == "[::1]:8080");
    }

    #[test]
    fn files_that_are_not_there_or_wrong_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let with = |files: RemoteFiles| Remote::new("https://box:9443", &files).err().unwrap();
        let files = RemoteFiles { authorities: Some(path.clone()), ..RemoteFiles::default() };
        assert!(with(files.clone()).contains(&format!("cannot read {}", path.display())));
        std::fs::write(&path, "no certificate\n").unwrap();
        assert!(with(files).contains("has no certificate"));
        std::fs::write(&path, "two\nlines\n").unwrap();
        assert!(authorization(&path).unwrap_err().contains("is not a token in one line"));
        std::fs::write(&path, "mmb_12\n").unwrap();
        assert_eq!(authorization(&path).unwrap(), "Bearer mmb_12");
    }
}
