//! TLS to a real server: which certificates are trusted, which are not, and how a refusal is reported.

use super::{super::PostgresStore, server::Server, settings};
use crate::{
    Postgres, SessionStore as _,
    conformance::{NOW, append_of, id, log},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tls").join(name)
}

async fn start() -> (Arc<Server>, String) {
    let start = || {
        let server = Server::with_tls(&fixture("server.pem"), &fixture("server.key"));
        let address = server.database("");
        (Arc::new(server), address.rsplit('/').next().unwrap().to_owned())
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Opens a database with the certificates of this file, or with the system's.
async fn open(address: &str, authority: Option<&str>) -> Result<PostgresStore, String> {
    let database = Postgres { ca_file: authority.map(fixture), ..settings(address) };
    PostgresStore::open(&database, |_| {}).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_server_that_is_trusted_is_used_over_tls() {
    let (server, name) = start().await;
    for mode in ["prefer", "require", "verify-full"] {
        let address = format!("{}?sslmode={mode}", server.address_at("localhost", &name));
        let store = open(&address, Some("ca.pem")).await.unwrap_or_else(|error| panic!("{mode}: {error}"));
        let lease = store.create(&id(mode), "", NOW).await.unwrap();
        store.append(&lease, 1, append_of(["a"])).await.unwrap();
        assert_eq!(log(&store, &id(mode)).await, "1:a");
        let sql = format!(
            "SELECT count(*) > 1 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE datname = '{name}' AND application_name = 'reseed'"
        );
        let asked = server.clone();
        let is_encrypted = tokio::task::spawn_blocking(move || asked.sql("postgres", &sql)).await.unwrap();
        assert_eq!(is_encrypted.trim(), "t", "{mode}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn an_untrusted_server_is_refused_immediately_with_the_reason() {
    let (server, name) = start().await;
    let shared = tokio::task::spawn_blocking(super::server::database).await.unwrap();
    let (right, wrong) = (server.address_at("localhost", &name), server.address_at("127.0.0.1", &name));
    let cases = [
        // Neither the system's authorities nor this one signed the certificate.
        (&right, "require", None, "UnknownIssuer; `sslrootcert` in DATABASE_URL names the authority"),
        (&right, "verify-full", Some("server.pem"), "certificate is refused"),
        // This fails even if TLS is only preferred, because anyone in between could claim anything.
        (&right, "prefer", None, "UnknownIssuer"),
        (&wrong, "verify-full", Some("ca.pem"), "not valid for name"),
        (&wrong, "require", Some("ca.pem"), "not valid for name"),
        (&right, "disable", None, "no encryption"),
        (&shared, "require", Some("ca.pem"), "server does not support TLS"),
    ];
    for (address, mode, authority, expected) in cases {
        let began = tokio::time::Instant::now();
        let error = open(&format!("{address}?sslmode={mode}"), authority).await.err();
        let error = error.unwrap_or_else(|| panic!("{address} {mode} is used"));
        assert!(error.contains(expected), "{address} {mode}: {error}");
        assert!(began.elapsed() < settings(address).patience / 2, "{address} {mode}: nothing is waited for");
    }
}
