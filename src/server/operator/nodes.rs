//! The servers that share the database.

use crate::{
    server::{
        answers::{NoParameters, Parameters, problem},
        app::App,
        auth::Operator,
    },
    store::NodeRow,
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns every server that shares the database, as this one sees them. The list is empty without a cluster.
pub(in crate::server) async fn nodes(
    _: Operator,
    _: Parameters<NoParameters>,
    State(app): State<Arc<App>>,
) -> Response {
    let Some(keeper) = app.registry.keeper() else { return Json(json!({ "items": [] })).into_response() };
    match keeper.nodes().await {
        Ok(rows) => {
            let me = keeper.me();
            let items: Vec<Value> = rows
                .iter()
                .map(|(row, is_silent)| {
                    let mut shown = item(row);
                    shown["self"] = (row.id == me).into();
                    if *is_silent {
                        shown["state"] = "silent".into();
                    }
                    shown
                })
                .collect();
            Json(json!({ "items": items })).into_response()
        }
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, app.registry.fault(&error)),
    }
}

/// Returns a server in the form that lists show.
pub(crate) fn item(row: &NodeRow) -> Value {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "node": row.id.0, "name": row.node.name, "address": row.node.address, "version": row.node.version,
        "state": state(row), "sessions": row.pulse.sessions, "connections": row.pulse.connections,
        "leaseMs": millis(row.node.lease), "beatAgeMs": millis(row.age),
    })
}

/// Returns a server's state. A program that only reads the table has no clock but the database's.
pub(crate) fn state(row: &NodeRow) -> &'static str {
    match row {
        row if row.age >= row.node.lease * 2 => "silent",
        row if row.pulse.draining => "draining",
        _ => "living",
    }
}

/// Finds a server by its number or its name. A name means the server that is not silent, because the rows of killed
/// ones stay for an hour.
///
/// # Errors
/// There is no such server, none that can be asked, or several.
pub(crate) fn chosen<'a>(rows: &'a [NodeRow], name: &str) -> Result<&'a NodeRow, String> {
    if let Some(row) = rows.iter().find(|row| row.id.to_string() == name) {
        return Ok(row);
    }
    let called: Vec<&NodeRow> = rows.iter().filter(|row| row.node.name == name).collect();
    let there: Vec<&NodeRow> = called.iter().copied().filter(|row| state(row) != "silent").collect();
    match (&there[..], &called[..]) {
        (&[row], _) => Ok(row),
        ([], []) => Err(format!("no server is called `{name}`; `reseed nodes` lists them")),
        ([], _) => Err(format!(
            "every server called `{name}` is silent: none can be asked, and others take their sessions over when \
             clients ask for them"
        )),
        _ => {
            let number = |row: &&NodeRow| format!("{} (last beat {:.1} s ago)", row.id, row.age.as_secs_f64());
            let numbers: Vec<String> = there.iter().map(number).collect();
            Err(format!(
                "several servers are called `{name}`, and one that was killed counts as silent only after twice its \
                 lease; give a number: {}",
                numbers.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;
    use crate::store::{NewNode, NodeId, NodeRow, Pulse};
    use std::time::Duration;

    /// Returns a server with a lease of 5 s, whose last beat was `age` seconds ago.
    fn server(id: i64, name: &str, age: u64) -> NodeRow {
        let lease = Duration::from_secs(5);
        let node = NewNode { name: name.to_owned(), address: None, version: "1".to_owned(), lease };
        NodeRow { id: NodeId(id), node, beat: 1, pulse: Pulse::default(), age: Duration::from_secs(age) }
    }

    #[test]
    fn a_name_means_the_server_that_is_not_silent() {
        let mut draining = server(9, "d", 0);
        draining.pulse.draining = true;
        let rows = [
            server(1, "a", 3_000),
            server(2, "a", 60),
            server(3, "a", 1),
            server(4, "b", 1),
            server(5, "b", 9),
            server(6, "b", 600),
            server(7, "c", 600),
            server(8, "c", 60),
            draining,
        ];
        for (name, expected) in [
            ("a", Ok(3)),
            ("2", Ok(2)),
            ("d", Ok(9)),
            ("b", Err("give a number: 4 (last beat 1.0 s ago), 5 (last beat 9.0 s ago)")),
            ("c", Err("every server called `c` is silent")),
            ("x", Err("no server is called `x`")),
        ] {
            match (chosen(&rows, name), expected) {
                (Ok(row), Ok(id)) => assert_eq!(row.id, NodeId(id), "{name}"),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{name}: {error}"),
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
    }
}
