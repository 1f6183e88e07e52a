//! Backups over HTTP: `POST /api/backup` starts one, and `GET` reports the newest.

use crate::{
    config::Database,
    server::{
        answers::{NoParameters, Parameters, problem},
        app::App,
        audit::{ASKED, Act, chain::Line},
        auth::Operator,
        sessions::now,
    },
    store::sqlite::{BackupError, BackupProgress, backup},
};
use axum::{
    Extension, Json,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use reseed_protocol::{
    ErrorBody, ErrorCode, Timestamp,
    ids::{COMMAND_ID_CHARS_MIN, check_id},
};
use serde::Serialize;
use std::{
    fs, io,
    net::SocketAddr,
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
    /// The Idempotency-Key of its request.
    #[serde(skip)]
    key: Option<String>,
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

    /// Records that a backup begins; returns its state and its file. Returns the state alone if the same request has
    /// begun it before.
    ///
    /// # Errors
    /// `overloaded`: another one is running.
    fn begin(&self, directory: &Path, key: Option<String>) -> Result<(Newest, Option<PathBuf>), ErrorBody> {
        let mut newest = self.newest();
        match &*newest {
            Some(same) if key.is_some() && same.key == key => return Ok((same.clone(), None)),
            Some(other) if other.state == RUNNING => {
                let message = format!("a backup is running: `{}`", other.file);
                return Err(ErrorBody::new(ErrorCode::Overloaded, message));
            }
            _ => {}
        }
        let started_at = now();
        let file = directory.join(format!("reseed-{}.db", started_at.to_string().replace(':', "")));
        let (state, shown) = (RUNNING, file.display().to_string());
        let begun = Newest { state, file: shown, started_at, key, ..Newest::default() };
        *newest = Some(begun.clone());
        Ok((begun, Some(file)))
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
        None => Json(serde_json::json!({ "state": "none" })).into_response(),
    }
}

/// Starts a backup.
pub(in crate::server) async fn start(
    lever: Lever,
    State(app): State<Arc<App>>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
) -> Response {
    let operator = match lever.operator() {
        Ok(operator) => operator.clone(),
        Err(error) => return problem(StatusCode::FORBIDDEN, error),
    };
    let (path, directory) = match app.backups.paths() {
        Ok(paths) => paths,
        Err(why) => return problem(StatusCode::FORBIDDEN, ErrorBody::new(ErrorCode::Forbidden, why)),
    };
    let key = headers.get("idempotency-key").map(|key| key.to_str().unwrap_or("").to_owned());
    if key.as_ref().is_some_and(|key| key.len() < COMMAND_ID_CHARS_MIN || check_id(key).is_err()) {
        let message = "Idempotency-Key must have 16 to 64 characters of A-Z a-z 0-9 . _ : -";
        return problem(StatusCode::BAD_REQUEST, ErrorBody::new(ErrorCode::InvalidField, message));
    }
    let (path, directory) = (path.to_owned(), directory.to_owned());
    let address = peer.map(|peer| peer.0.0.ip());
    let act = Act { who: &operator.name, what: BACKUP, session: None, user: None, address, outcome: ASKED };
    if let Err(error) = app.admission.audit.act(act).await {
        return problem(StatusCode::SERVICE_UNAVAILABLE, error);
    }
    // Nothing waits from here on, so a client that goes away leaves no backup that never runs.
    let ended = |app: &App, who, outcome: &str| {
        app.admission.audit.note(BACKUP, Line { who, outcome: outcome.to_owned(), ..Line::default() });
    };
    let (begun, file) = match app.backups.begin(&directory, key) {
        Ok((begun, Some(file))) => (begun, file),
        Ok((begun, None)) => {
            ended(&app, operator.name, "begun before");
            return (StatusCode::ACCEPTED, Json(begun)).into_response();
        }
        Err(error) => {
            ended(&app, operator.name, error.code.as_str());
            return problem(StatusCode::CONFLICT, error);
        }
    };
    let (shared, who) = (app.clone(), operator.name);
    let work = move || {
        let went_on = |progress| {
            app.backups.progress(progress);
            !app.stopping.is_draining()
        };
        let removed = remove_partial(&directory).map_err(|source| BackupError::Io { path: directory, source });
        let made = removed.and_then(|()| backup(&path, &file, went_on));
        if let Err(error) = &made {
            tracing::error!(%error, "back up the database");
        }
        ended(&app, who, if made.is_ok() { "done" } else { "failed" });
        app.backups.end(&made);
    };
    // A thread of its own, which does not keep the server from stopping.
    if let Err(source) = thread::Builder::new().name(BACKUP.to_owned()).spawn(work) {
        shared.backups.end(&Err(BackupError::Io { path: PathBuf::new(), source }));
    }
    (StatusCode::ACCEPTED, Json(begun)).into_response()
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
