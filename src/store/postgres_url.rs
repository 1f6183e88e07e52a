//! The address of a PostgreSQL database. It may contain a password, so nothing here prints more than host and database.

use std::{fmt, path::PathBuf, time::Duration};

/// The prefixes of an address.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The values of `sslmode`. `require` verifies the certificate in the same way as `verify-full`.
const SSL_MODES: [&str; 4] = ["disable", "prefer", "require", "verify-full"];

/// A PostgreSQL database for sessions: its location, and how the store uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postgres {
    /// The address.
    pub url: PostgresUrl,
    /// The schema that holds the tables.
    pub schema: String,
    /// Certificates that are trusted instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The number of connections that read.
    pub readers: u32,
    /// How long a read or a write may wait for the server.
    pub patience: Duration,
    /// True if a server that may lose acknowledged data is accepted.
    pub allows_unsafe: bool,
}

impl Postgres {
    /// Returns the database at an address, with the default options.
    #[must_use]
    pub fn at(url: PostgresUrl) -> Self {
        let patience = Duration::from_secs(10);
        Self { url, schema: "reseed".to_owned(), ca_file: None, readers: 8, patience, allows_unsafe: false }
    }

    /// Parses an address. Its options `schema` and `sslrootcert` are ours, and the URL has the others. The error says
    /// what is wrong and repeats nothing of the address.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut others, mut schema, mut ca_file) = (Vec::new(), None, None);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("schema", name)) if !is_schema(name) => {
                    return Err("schema must be 1 to 63 of a-z 0-9 _, not beginning with a digit or pg_");
                }
                Some(("schema", name)) => schema = Some(name.to_owned()),
                Some(("sslrootcert", "")) => return Err("sslrootcert must be the path of a file"),
                Some(("sslrootcert", path)) => ca_file = Some(PathBuf::from(path.replace("%2F", "/"))),
                _ => others.push(option),
            }
        }
        let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
        let mut postgres = Self::at(PostgresUrl::parse(&url)?);
        postgres.schema = schema.unwrap_or(postgres.schema);
        Ok(Self { ca_file, ..postgres })
    }
}

/// An address like `postgres://user:password@host:5432/database?sslmode=verify-full`.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    text: String,
    shown: String,
}

impl PostgresUrl {
    /// Returns true if a text begins like such an address.
    pub(super) fn is_meant(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Parses an address without options of ours. The error says what is wrong and repeats nothing of the address.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).ok_or("it has another scheme")?;
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = base.split_once('/').unwrap_or((base, ""));
        let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        let encode = "write special characters of the user name and the password percent-encoded, such as %2F for /";
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:,%[]".contains(c);
        if authority.matches('@').count() > 1 || database.contains('@') || !hosts.chars().all(is_plain) {
            return Err(encode);
        }
        // The text after the last colon of a host is its port, unless the host is an IPv6 address.
        let is_port = |host: &str| match host.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => port.chars().all(|c| c.is_ascii_digit()),
            _ => true,
        };
        if !hosts.split(',').all(is_port) {
            return Err(encode);
        }
        let (mut host, mut name) = (hosts.to_owned(), database.to_owned());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').ok_or("an option after `?` is not name=value")?;
            match key {
                "sslmode" if value == "verify-ca" => return Err("sslmode=verify-ca is not supported; use verify-full"),
                "sslmode" if !SSL_MODES.contains(&value) => {
                    return Err("sslmode must be disable, prefer, require or verify-full");
                }
                "host" => host = value.to_owned(),
                "dbname" => name = value.to_owned(),
                _ if !key.chars().all(|c| c.is_ascii_lowercase() || c == '_') => return Err(encode),
                _ => {}
            }
        }
        if host.is_empty() {
            return Err("it names no host");
        }
        if name.is_empty() {
            return Err("it names no database");
        }
        Ok(Self { text: text.to_owned(), shown: format!("PostgreSQL at {}/{name}", host.replace("%2F", "/")) })
    }

    /// Returns the whole address, including the password. It must not be shown.
    #[cfg(feature = "postgres")]
    pub(crate) fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Returns true for the name of a schema that needs no quotes in SQL.
fn is_schema(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let begins_well = !name.starts_with(|c: char| c.is_ascii_digit()) && !name.starts_with("pg_");
    is_plain && begins_well && (1..=63).contains(&name.len())
}

#[cfg(test)]
mod tests {
    use super::{Postgres, PostgresUrl};
    use std::path::Path;

    #[test]
    fn an_address_shows_host_and_database_only() {
        for (text, shown) in [
            ("postgres://db/reseed", "db/reseed"),
            ("postgresql://reseed:hunter2@a:5432,b:5433/reseed?sslmode=verify-full", "a:5432,b:5433/reseed"),
            ("postgres://reseed:hun%2Fter2@[::1]:5432/reseed", "[::1]:5432/reseed"),
            ("postgres://reseed@%2Frun%2Fpostgresql/reseed", "/run/postgresql/reseed"),
            ("postgres:///reseed?host=/run/postgresql&password=hunter2", "/run/postgresql/reseed"),
        ] {
            let url = PostgresUrl::parse(text).unwrap_or_else(|reason| panic!("{text}: {reason}"));
            assert_eq!(url.to_string(), format!("PostgreSQL at {shown}"));
            assert_eq!(format!("{url:?}"), format!("PostgreSQL at {shown}"));
            assert_eq!(url.expose(), text);
        }
    }

    #[test]
    fn any_other_is_refused_without_repeating_it() {
        for (text, expected) in [
            ("postgres://", "no host"),
            ("postgres://db", "no database"),
            ("postgres://reseed:hunter2@/reseed", "no host"),
            ("postgres://reseed:hunt/er2@db/reseed", "percent-encoded"),
            ("postgres://reseed:hunt?er2@db/reseed", "percent-encoded"),
            ("postgres://reseed:hunt@er2@db/reseed", "percent-encoded"),
            ("postgres://reseed:12?34@db/reseed", "not name=value"),
            ("postgres://db/reseed?sslmode=verify-ca", "use verify-full"),
            ("postgres://db/reseed?sslmode=allow", "sslmode must be"),
            ("postgres://db/reseed?sslrootcert=", "path of a file"),
            ("postgres://db/reseed?schema=", "schema must be"),
            ("postgres://db/reseed?schema=Chat", "schema must be"),
            ("postgres://db/reseed?schema=pg_chat", "schema must be"),
            ("postgres://db/reseed?schema=7chat", "schema must be"),
            ("postgres://reseed:hunt?schema=er@db/reseed", "schema must be"),
        ] {
            let reason = Postgres::parse(text).expect_err(text);
            assert!(reason.contains(expected), "{text}: {reason}");
        }
    }

    #[test]
    fn the_schema_and_the_certificates_are_options_of_the_address() {
        let plain = Postgres::parse("postgres://db/reseed?sslmode=require").unwrap();
        assert_eq!((plain.schema.as_str(), plain.ca_file), ("reseed", None));
        for (query, url) in [
            ("?schema=chat_2&sslrootcert=certs/ca.pem", "postgres://db/reseed"),
            ("?sslrootcert=certs%2Fca.pem&sslmode=require&schema=chat_2", "postgres://db/reseed?sslmode=require"),
        ] {
            let postgres = Postgres::parse(&format!("postgres://db/reseed{query}")).unwrap();
            assert_eq!((postgres.schema.as_str(), postgres.url.expose()), ("chat_2", url));
            assert_eq!(postgres.ca_file.as_deref(), Some(Path::new("certs/ca.pem")));
        }
    }
}
