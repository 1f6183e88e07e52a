//! Backups over HTTP: `POST /api/backup` starts one, and `GET` reports the newest.

use super::levers::Lever;
use crate::{
    server::{
        answers::{NoParameters, Parameters},
        app::App,
        audit::{ASKED, chain::Line},
        auth::Operator,
    },
    store::sqlite::BackupError,
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

/// The name of the act.
const BACKUP: &str = "backup";

/// Reports the newest backup since the start.
pub(in crate::server) async fn newest(
    _: Operator,
    _: Parameters<NoParameters>,
    State(app): State<Arc<App>>,
) -> Response {
    match &*app.backups.newest() {
        Some(newest) => Json(newest).into_response(),
        None => Json(json!({ "state": "none" })).into_response(),
    }
}

/// Starts a backup.
pub(super) async fn start(lever: Lever, State(app): State<Arc<App>>) -> Response {
    let puller = lever.clone();
    lever
        .once(&app.clone(), BACKUP, String::new(), async move {
            let refused = |why| ErrorBody::new(ErrorCode::Forbidden, why);
            let (path, directory) = app.backups.paths().map_err(refused)?;
            let (path, directory) = (path.to_owned(), directory.to_owned());
            puller.record(&app, BACKUP, (None, None), ASKED).await?;
            let (begun, file) = match app.backups.begin(&directory) {
                Ok(begun) => begun,
                Err(error) => {
                    puller.record(&app, BACKUP, (None, None), error.code.as_str()).await?;
                    return Err(error);
                }
            };
            let ended = app.clone();
            let work = move || write(&app, puller.operator.name, &path, &file);
            // A thread of its own, which does not keep the server from stopping.
            if let Err(source) = thread::Builder::new().name(BACKUP.to_owned()).spawn(work) {
                ended.backups.end(&Err(BackupError::Io { path: PathBuf::new(), source }));
            }
            Ok((StatusCode::ACCEPTED, json!(begun)))
        })
        .await
}

/// Writes a backup, and records how it ended.
fn write(app: &App, who: String, path: &Path, file: &Path) {
    let made = app.backups.write(path, file, || !app.stopping.is_draining());
    if let Err(error) = &made {
        tracing::error!(%error, "back up the database");
    }
    let outcome = if made.is_ok() { "done" } else { "failed" };
    app.admission.audit.note(BACKUP, Line { who, outcome: outcome.to_owned(), ..Line::default() });
}
