//! Backups over HTTP: `POST /api/backup` starts one, and `GET` reports the newest.

use super::levers::Lever;
use crate::{
    server::{
        answers::{NoParameters, Parameters},
        app::App,
        audit::ASKED,
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
use std::{io, sync::Arc, thread};
use tokio::sync::oneshot;

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
            let (writing, written_to) = (app.clone(), file.clone());
            let (done, made) = oneshot::channel();
            let work = move || {
                let goes_on = || !writing.stopping.is_draining();
                // An error means that the server has stopped.
                let _ = done.send(writing.backups.write(&path, &written_to, goes_on));
            };
            // A thread of its own, which does not keep the server from stopping.
            if let Err(source) = thread::Builder::new().name(BACKUP.to_owned()).spawn(work) {
                let failed = BackupError::Io { path: file, source };
                let error = ErrorBody::new(ErrorCode::Internal, failed.to_string());
                end(&app, &puller, Err(failed)).await;
                return Err(error);
            }
            let ending = app.clone();
            app.stopping.connections.spawn(async move {
                let died = |_| Err(BackupError::Io { path: file, source: io::Error::other("its thread has failed") });
                let made = made.await.unwrap_or_else(died);
                end(&ending, &puller, made).await;
            });
            Ok((StatusCode::ACCEPTED, json!(begun)))
        })
        .await
}

/// Records how a backup has ended.
async fn end(app: &App, puller: &Lever, made: Result<u64, BackupError>) {
    app.backups.end(&made);
    if let Err(error) = &made {
        tracing::error!(%error, "back up the database");
    }
    puller.record_outcome(app, BACKUP, (None, None), if made.is_ok() { "done" } else { "failed" }).await;
}
