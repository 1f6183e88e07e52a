//! Texts of all kinds in databases of all encodings, and roles with defaults that would break the store.

use super::{database, open, server};
use crate::{
    SessionStore as _,
    conformance::{NOW, append_of, id, log, tests},
};

const SQL_ASCII: &str = "TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'";
const LATIN1: &str = "TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'";

#[tokio::test]
async fn a_database_of_any_encoding_holds_every_text() {
    for options in [SQL_ASCII, LATIN1] {
        let address = database(options).await;
        let store = open(&address).await;
        tests::writing::a_body_of_any_text_comes_back_byte_for_byte(&store).await;
        let owner = "Zoë 東京 \0 \u{10FFFF}";
        let lease = store.create(&id(&"x".repeat(64)), owner, NOW).await.unwrap();
        store.append(&lease, 1, append_of([r#"{"escaped":"\u0000","key order":1,"a":2}"#])).await.unwrap();
        let head = store.head(&lease.session).await.unwrap();
        assert_eq!(head.owner, owner);
        assert_eq!(log(&store, &lease.session).await, r#"1:{"escaped":"\u0000","key order":1,"a":2}"#);
        assert_eq!(store.usage(owner).await.unwrap().unwrap().sessions, 1);
    }
    for options in [SQL_ASCII, LATIN1] {
        let store = open(&database(options).await).await;
        tests::searching::words_are_found_in_any_language(&store).await;
        let store = open(&database(options).await).await;
        tests::reading::a_list_is_ordered_paged_searched_and_of_one_owner(&store).await;
    }
}

#[tokio::test]
async fn the_defaults_of_a_database_change_nothing() {
    let address = database("").await;
    let name = address.rsplit('/').next().unwrap().to_owned();
    let set = tokio::task::spawn_blocking(move || {
        for setting in [
            "synchronous_commit = off",
            "default_transaction_isolation = 'serializable'",
            "default_transaction_read_only = on",
            "statement_timeout = '1ms'",
            "lock_timeout = '1ms'",
            "search_path = pg_catalog",
            "bytea_output = 'escape'",
            "standard_conforming_strings = off",
        ] {
            server::sql("postgres", &format!("ALTER DATABASE {name} SET {setting}"));
        }
    });
    set.await.unwrap();
    let store = open(&address).await;
    tests::writing::sessions_written_at_once_do_not_mix(&store).await;
}
