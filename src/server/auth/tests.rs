//! Tests which credentials are accepted, under which name, and with which scopes.

use super::*;
use crate::config::Settings;

fn auth(host: &str) -> Auth {
    let settings = Settings::from_iter([
        ("AUTH_TOKENS", "ann:secret-a,bob:secret-b"),
        ("OPERATOR_TOKENS", "ops:secret-o"),
        ("SERVICE_TOKENS", "app:secret-s,reader/read:secret-r"),
        ("ALLOWED_ORIGINS", "https://chat.example"),
        ("HOST", host),
    ]);
    Auth::new(&settings.unwrap(), None, None)
}

/// Returns the name that a token or a ticket opens sessions as.
async fn name(auth: &Auth, token: Option<&str>, ticket: Option<&str>) -> Option<Name> {
    auth.check(token, ticket).await.ok().map(|grant| grant.name().clone())
}

fn service(auth: &Auth, token: &str) -> Service {
    auth.service(token).expect("a service")
}

/// Issues a ticket of a service for its user `name`; returns the ticket and its id.
async fn mint(auth: &Auth, service: &Service, name: &str) -> (String, String) {
    let draft =
        Draft { name: service.user(name), scopes: service.scopes, source: service.source.clone(), ..everyone() };
    auth.issue(draft, Duration::from_secs(60)).await.unwrap().unwrap()
}

#[tokio::test]
async fn tokens_name_their_owner() {
    let auth = auth("127.0.0.1");
    let table = [
        ("secret-a", Some("ann")),
        ("secret-b", Some("bob")),
        ("secret-o", None),
        ("secret-s", None),
        ("", None),
        ("secret-", None),
    ];
    for (token, expected) in table {
        assert_eq!(name(&auth, Some(token), None).await.as_deref(), expected, "{token}");
    }
    for (token, is_operator) in
        [(Some("secret-o"), true), (Some("secret-a"), false), (Some("secret-s"), false), (None, false)]
    {
        assert_eq!(auth.operator(token).await.is_some(), is_operator, "{token:?}");
    }
}

#[tokio::test]
async fn a_ticket_is_good_once() {
    let auth = auth("127.0.0.1");
    let Ok(Minter::User(user, _, _, source, _)) = auth.minter(Some("secret-a")).await else { panic!("a user") };
    let (ticket, _) =
        auth.issue(Draft { name: user, source, ..everyone() }, Duration::from_secs(60)).await.unwrap().unwrap();
    assert_eq!(name(&auth, None, Some(&ticket)).await.as_deref(), Some("ann"));
    assert_eq!(name(&auth, None, Some(&ticket)).await, None);
}

#[tokio::test]
async fn no_service_names_the_user_of_another() {
    let auth = auth("127.0.0.1");
    let (app, reader) = (service(&auth, "secret-s"), service(&auth, "secret-r"));
    for given in ["ann", "|ann", "app|ann", "service:app|ann"] {
        let names = [given.to_owned(), app.user(given), reader.user(given)];
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
    }
    let (ticket, _) = mint(&auth, &app, "ann").await;
    assert_eq!(name(&auth, None, Some(&ticket)).await.as_deref(), Some("service:app|ann"));
}

#[tokio::test]
async fn a_service_takes_back_what_it_granted_and_nothing_else() {
    let auth = auth("127.0.0.1");
    let (app, reader) = (service(&auth, "secret-s"), service(&auth, "secret-r"));
    let (unused, _) = mint(&auth, &app, "ann").await;
    let (used, id) = mint(&auth, &app, "ann").await;
    let grant = auth.check(None, Some(&used)).await.unwrap();
    assert_eq!(auth.revoke(&reader, &Revoked::User("ann".to_owned())).await.unwrap(), (0, 0), "another service's user");
    assert_eq!(auth.revoke(&reader, &Revoked::Ticket(id.clone())).await.unwrap(), (0, 0), "another service's ticket");
    assert_eq!(auth.revoke(&app, &Revoked::Ticket(id.clone())).await.unwrap(), (0, 1));
    assert_eq!(grant.ended().await, Ended::Revoked);
    assert_eq!(
        auth.revoke(&app, &Revoked::User("ann".to_owned())).await.unwrap(),
        (1, 0),
        "the other has ended already"
    );
    assert_eq!(name(&auth, None, Some(&unused)).await, None);
}

#[test]
fn a_name_is_short_and_printable() {
    for (given, expected) in
        [("", false), ("auth0|17", true), ("Ann Smith", true), ("a\nb", false), (&"x".repeat(257), false)]
    {
        assert_eq!(is_name(given), expected, "{given}");
    }
}

#[test]
fn only_known_origins_and_own_hosts_come_in() {
    let table = [
        ("127.0.0.1", "http://localhost:8080", true),
        ("127.0.0.1", "http://127.0.0.1:8080", true),
        ("127.0.0.1", "http://localhost:9999", false),
        ("127.0.0.1", "https://chat.example", true),
        ("127.0.0.1", "https://evil.example", false),
        ("127.0.0.1", "null", false),
        ("0.0.0.0", "http://localhost:8080", false),
        ("0.0.0.0", "https://chat.example", true),
    ];
    for (host, origin, allowed) in table {
        assert_eq!(auth(host).allows_origin(origin, 8080), allowed, "{origin} at {host}");
    }
    let hosts = [
        ("localhost:8080", true),
        ("[::1]:8080", true),
        ("127.0.0.1", true),
        ("evil.example:8080", false),
        ("chat.example", true),
    ];
    for (host, allowed) in hosts {
        assert_eq!(auth("127.0.0.1").allows_host(host), allowed, "{host}");
    }
}
