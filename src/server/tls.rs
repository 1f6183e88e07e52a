//! TLS for clients: the certificate and its key, which can be replaced while the server runs.

use crate::{
    clock::{Clock as _, SystemClock},
    config::Settings,
};
use reseed_protocol::Timestamp;
use rustls::{
    CertificateError, RootCertStore, ServerConfig,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem, pem::PemObject},
    server::ParsedCertificate,
};
use std::{
    fs::File,
    io::{self, BufReader, Read as _},
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::either::Either;

/// A client's connection, with or without TLS.
pub(super) type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Maximum bytes of a file of certificates. A chain of ten has less than a tenth of it.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Bytes that may wait in one connection's TLS buffer: one record. A slow reader would have to read more before it
/// reaches current events.
const UNSENT_BYTES_MAX: usize = 16 * 1024;

/// A certificate with its key, checked.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    config: Arc<ServerConfig>,
    /// The time after which the certificate is not valid. `None` if the verifier does not name it.
    ends: Option<Timestamp>,
}

/// The certificate in use.
#[derive(Debug)]
pub(crate) struct Tls(RwLock<Identity>);

/// The reason a certificate cannot be used. It never names a path, because a key may have been put in its place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file cannot be read, or holds nothing of its kind.
    #[error("{variable} names a file that {why}")]
    File { variable: &'static str, why: String },
    /// The key and the certificate do not belong together, or TLS cannot be set up with them.
    #[error("TLS_CERT_FILE and TLS_KEY_FILE cannot be used together")]
    Pair(#[from] rustls::Error),
}

impl Identity {
    /// Reads the files that the settings name. `None` if they name none.
    ///
    /// # Errors
    /// A file cannot be read, or the key is not the certificate's.
    pub(crate) fn read(settings: &Settings) -> Result<Option<Self>, Error> {
        let Some((certificate, key)) = settings.tls_paths() else { return Ok(None) };
        let chain: Vec<CertificateDer<'static>> = read("TLS_CERT_FILE", &certificate, "certificate")?;
        let key: Vec<PrivateKeyDer<'static>> = read("TLS_KEY_FILE", &key, "private key without a passphrase")?;
        let key = key.into_iter().next().expect("a file that holds none is an error");
        let ends = ends(&chain[0]);
        if let Some(end) = ends.filter(|end| *end < SystemClock.now()) {
            tracing::warn!("the certificate of TLS_CERT_FILE expired on {end}");
        }
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(Self { config: Arc::new(config), ends }))
    }

    /// Describes until when the certificate is valid.
    pub(crate) fn validity(&self) -> String {
        match self.ends {
            Some(end) if end < SystemClock.now() => format!("warning: the certificate expired on {end}"),
            Some(end) => format!("the certificate is valid until {end}"),
            None => "it is unknown until when the certificate is valid".to_owned(),
        }
    }
}

/// Reads what a PEM file holds of one kind: at least one.
fn read<T: PemObject>(variable: &'static str, path: &Path, kind: &str) -> Result<Vec<T>, Error> {
    let fault = |why| Error::File { variable, why };
    let file = File::open(path).map_err(|error| fault(format!("cannot be read: {error}")))?;
    let found: Result<Vec<T>, pem::Error> = T::pem_reader_iter(BufReader::new(file.take(FILE_BYTES_MAX))).collect();
    match found {
        Ok(found) if found.is_empty() => Err(fault(format!("holds no {kind}"))),
        Ok(found) => Ok(found),
        // Other errors quote lines of the file.
        Err(pem::Error::Io(error)) => Err(fault(format!("cannot be read: {error}"))),
        Err(_) => Err(fault("is not PEM".to_owned())),
    }
}

/// Returns the time after which a certificate is not valid. The verifier names it if it is asked about the year 9999.
fn ends(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let year_9999 = UnixTime::since_unix_epoch(Duration::from_secs(253_402_300_799));
    let algorithms = default_provider().signature_verification_algorithms.all;
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    match verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], year_9999, algorithms) {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            i64::try_from(not_after.as_secs()).ok().map(|secs| Timestamp(secs * 1_000))
        }
        _ => None,
    }
}

impl Tls {
    pub(crate) fn new(identity: Identity) -> Self {
        Self(RwLock::new(identity))
    }

    /// Uses another certificate for handshakes that begin from now on.
    pub(crate) fn replace(&self, identity: Identity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    /// Makes the handshake with the present certificate.
    ///
    /// # Errors
    /// The client does not use TLS, does not trust the certificate, or broke off.
    pub(super) async fn handshake(&self, stream: TcpStream) -> io::Result<Stream> {
        let config = self.0.read().unwrap_or_else(PoisonError::into_inner).config.clone();
        let limited = |connection: &mut rustls::ServerConnection| connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        let stream = TlsAcceptor::from(config).accept_with(stream, limited).await?;
        Ok(Either::Right(Box::new(stream)))
    }
}
