//! TLS to the database: certificates are always verified, against the system's root certificates or those in a file.

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The reason certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file of `sslrootcert` cannot be read or holds no certificate.
    #[error("`sslrootcert` in DATABASE_URL names {path}, which {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("TLS to the database cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// Creates the TLS connector. Root certificates are only read if TLS may be used.
pub(super) fn connector(is_used: bool, ca_file: Option<&Path>) -> Result<MakeRustlsConnect, Error> {
    let roots = match ca_file {
        Some(path) => from_file(path)?,
        None if is_used => system(),
        None => RootCertStore::empty(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be read are skipped; a server that needs one of them is then refused.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn from_file(path: &Path) -> Result<RootCertStore, Error> {
    let fault = |reason: String| Error::File { path: path.to_owned(), reason };
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| fault(format!("cannot be read: {error}")))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| fault(format!("is not PEM: {error}")))?;
        roots.add(certificate).map_err(|error| fault(format!("holds an invalid certificate: {error}")))?;
    }
    if roots.is_empty() { Err(fault("holds no certificate".to_owned())) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::connector;

    #[test]
    fn a_file_without_certificates_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        for (text, expected) in [(None, "cannot be read"), (Some("nothing"), "holds no certificate")] {
            text.inspect(|text| std::fs::write(&path, text).unwrap());
            let error = connector(true, Some(&path)).err().unwrap().to_string();
            assert!(error.contains("ca.pem") && error.contains(expected), "{error}");
        }
        assert!(connector(true, None).is_ok());
    }
}
