//! Backups over HTTP: `POST /api/backup` starts one, and `GET` reports the newest.

use super::levers::Lever;
use crate::{
    config::Database,
    server::{
        answers::{NoParameters, Parameters},
        app::App,
        audit::{ASKED, chain::Line},
        auth::Operator,
        sessions::now,
    },
    store::sqlite::{BackupError, BackupProgress, backup},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode, Timestamp};
use serde::Serialize;
use serde_json::json;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// The backups of this server.
#[derive(Debug)]
pub(crate) struct Backups {
    database: Database,
    /// BACKUP_DIR.
    directory: Option<PathBuf>,
    newest: Mutex<Option<Newest>>,
}

/// The newest backup since the start.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Newest {
    state: &'static str,
    file: String,
    pages: u64,
    pages_done: u64,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

const RUNNING: &str = "running";

/// The name of the act.
const BACKUP: &str = "backup";

impl Backups {
    pub(crate) fn new(database: Database, directory: Option<PathBuf>) -> Self {
        Self { database, directory, newest: Mutex::default() }
    }

    fn newest(&self) -> MutexGuard<'_, Option<Newest>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the database and the directory.
    ///
    /// # Errors
    /// The reason why this server makes no backups.
    fn paths(&self) -> Result<(&Path, &Path), &'static str> {
        match (&self.database, &self.directory) {
            (Database::Sqlite(path), Some(directory)) => Ok((path, directory)),
            (Database::Sqlite(_), None) => Err("BACKUP_DIR is unset; set it to the directory for backups"),
            (Database::Postgres(_), _) => {
                Err("back up PostgreSQL with its own tools, such as pg_basebackup; this address is for SQLite")
            }
            (Database::Memory, _) => Err("the database is in memory; there is nothing to back up"),
        }
    }

    /// Records that a backup begins; returns its state and its file.
    ///
    /// # Errors
    /// `overloaded`: another one is running.
    fn begin(&self, directory: &Path) -> Result<(Newest, PathBuf), ErrorBody> {
        let mut newest = self.newest();
        if let Some(other) = newest.as_ref().filter(|other| other.state == RUNNING) {
            let message = format!("a backup is running: `{}`", other.file);
            return Err(ErrorBody::new(ErrorCode::Overloaded, message));
        }
        let started_at = now();
        let file = directory.join(format!("reseed-{}.db", started_at.to_string().replace(':', "")));
        let (state, shown) = (RUNNING, file.display().to_string());
        let begun = Newest { state, file: shown, started_at, ..Newest::default() };
        *newest = Some(begun.clone());
        Ok((begun, file))
    }

    fn progress(&self, BackupProgress { pages, pages_done }: BackupProgress) {
        if let Some(newest) = &mut *self.newest() {
            (newest.pages, newest.pages_done) = (pages, pages_done);
        }
    }

    fn end(&self, made: &Result<u64, BackupError>) {
        if let Some(newest) = &mut *self.newest() {
            newest.state = if made.is_ok() { "done" } else { "failed" };
            newest.ended_at = Some(now());
            newest.bytes = made.as_ref().ok().copied();
            newest.error = made.as_ref().err().map(ToString::to_string);
        }
    }
}

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
            let work = move || write(&app, puller.operator.name, &path, directory, &file);
            // A thread of its own, which does not keep the server from stopping.
            if let Err(source) = thread::Builder::new().name(BACKUP.to_owned()).spawn(work) {
                ended.backups.end(&Err(BackupError::Io { path: PathBuf::new(), source }));
            }
            Ok((StatusCode::ACCEPTED, json!(begun)))
        })
        .await
}

/// Writes a backup, and records how it ended.
fn write(app: &App, who: String, path: &Path, directory: PathBuf, file: &Path) {
    let went_on = |progress| {
        app.backups.progress(progress);
        !app.stopping.is_draining()
    };
    let removed = remove_partial(&directory).map_err(|source| BackupError::Io { path: directory, source });
    let made = removed.and_then(|()| backup(path, file, went_on));
    if let Err(error) = &made {
        tracing::error!(%error, "back up the database");
    }
    let outcome = if made.is_ok() { "done" } else { "failed" };
    app.admission.audit.note(BACKUP, Line { who, outcome: outcome.to_owned(), ..Line::default() });
    app.backups.end(&made);
}

/// Removes what a killed server has left. The directory is for the backups of one server.
fn remove_partial(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if name.starts_with("reseed-") && name.contains(".db.partial") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
